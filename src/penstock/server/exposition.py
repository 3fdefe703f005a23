"""One page of metrics out of those of several workers."""

from __future__ import annotations


def merge(pages: list[str]) -> str:
    """Families stand together, and samples with the same labels are added up."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, dict[str, float]] = {}
    for page in pages:
        family = ""
        for line in page.splitlines():
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
