"""One page of metrics out of those of several workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.metrics.names import (
    CHILD_RESTARTS,
    PIPELINE_COUNTERS,
    PIPELINE_GAUGES,
    PIPELINE_TENANT_COUNTERS,
    SERVER_COUNTERS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def merge(pages: list[str]) -> str:
    """Families stand together, and samples with the same labels are added up."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, dict[str, float]] = {}
    for page in pages:
        family = ""
        for line in page.split("\n"):  # nothing else ends a line in this format
            if line.startswith("# "):
                _, kind, family, *_ = line.split(" ", 3)
                if line not in heads.setdefault(family, []) and kind in ("HELP", "TYPE"):
                    heads[family].append(line)
                samples.setdefault(family, {})
            elif line:
                series, _, value = line.rpartition(" ")
                known = samples.setdefault(family, {})
                known[series] = known.get(series, 0.0) + float(value)
    lines = []
    for family, head in heads.items():
        lines += head
        lines += [f"{series} {value:.17g}" for series, value in samples[family].items()]
    return "\n".join(lines) + "\n"


def children_page(restarts: Mapping[str, int]) -> str:
    """How often the server's processes were replaced, by what they are."""
    text, label = SERVER_COUNTERS[CHILD_RESTARTS]
    lines = [f'{CHILD_RESTARTS}{{{label}="{kind}"}} {count}\n' for kind, count in restarts.items()]
    head = f"# HELP {CHILD_RESTARTS} {text}\n# TYPE {CHILD_RESTARTS} counter\n"
    return "".join([head, *lines])


def pipeline_page(progress: Mapping[str, Any] | None) -> str:
    """What the pipeline has written down; nothing where there is none."""
    return "".join(_pipeline_lines(progress)) if progress is not None else ""


def _pipeline_lines(progress: Mapping[str, Any]) -> Iterator[str]:
    for name, (text, field) in PIPELINE_COUNTERS.items():
        yield _sample(name, "counter", text, progress.get(field, 0))
    for name, (text, field) in PIPELINE_TENANT_COUNTERS.items():
        yield f"# HELP {name} {text}\n# TYPE {name} counter\n"
        for namespace, value in progress.get(field, {}).items():
            yield f'{name}{{namespace="{_escaped(namespace)}"}} {value:.17g}\n'
    for name, (text, field) in PIPELINE_GAUGES.items():
        for batch in progress.get("recent", [])[-1:]:
            yield _sample(name, "gauge", text, batch.get(field, 0))


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _sample(name: str, kind: str, text: str, value: float) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {value:.17g}\n"
