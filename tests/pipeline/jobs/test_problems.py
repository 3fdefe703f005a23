"""Of a long story the one sentence that matters."""

from __future__ import annotations

import pytest

from penstock.model.errors import Damaged
from penstock.pipeline.jobs.problems import problem_of

IN_A_TASK = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "merge.py", line 1, in merged
    raise error: here
{raised}
"""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (Damaged("it is damaged"), "it is damaged"),
        (ValueError(""), "ValueError"),
        (RuntimeError("[SOME] Spark says\n\tat java"), "[SOME] Spark says"),
        (
            RuntimeError(IN_A_TASK.format(raised="penstock.model.errors.Damaged: /file")),
            "/file",
        ),
        (
            RuntimeError(IN_A_TASK.format(raised="pyarrow.lib.ArrowInvalid: no Parquet")),
            "pyarrow.lib.ArrowInvalid: no Parquet",
        ),
        (
            RuntimeError(
                IN_A_TASK.format(raised="OSError: 1") + IN_A_TASK.format(raised="KeyError")
            ),
            "KeyError",
        ),
        (RuntimeError(IN_A_TASK.format(raised="  no more")), "An exception was thrown from the "),
        (
            RuntimeError("\n  [X] thrown: " + IN_A_TASK.format(raised="OSError: gone\n SQLSTATE")),
            "OSError: gone",
        ),
    ],
    ids=range(8),
)
def test_problem_is_one_line(error: Exception, sentence: str) -> None:
    """Ours, what a task raised, or the first of Spark's."""
    assert problem_of(error).startswith(sentence)
    assert "\n" not in problem_of(error)
