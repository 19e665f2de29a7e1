"""Forms of answers with the verdicts that they deserve, each judged by hand before it was graded.

`reported.jsonl` has forms of the kinds that public bug reports name, `written.jsonl` those that
were written to test the grammar, half of them on MATH's own problems. `spelt.jsonl` has the many
spellings of right answers, `attacked.jsonl` answers that were made with the grader's code at hand,
`unseen.jsonl` answers that were made from docs/benchmarks.md alone and changed nothing.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rapid.benchmarks.math.record import MathProblem


class JudgedForm(NamedTuple):
    """A problem, a completion with a form of its answer, and the verdict that it deserves.

    Args:
        is_mistake: whether the grader gives the other verdict, which is known.
    """

    problem: MathProblem
    completion: str
    is_right: bool
    kind: str
    is_mistake: bool = False


def judged_forms() -> Iterator[JudgedForm]:
    for path in sorted(Path(__file__).parent.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            row = json.loads(line)
            problem = MathProblem(
                unique_id=f"{path.stem}/{number}", problem=row["problem"], answer=row["answer"]
            )
            completion = f"\\boxed{{{row['form']}}}"
            is_mistake = row.get("mistake", False)
            yield JudgedForm(problem, completion, bool(row["right"]), row["kind"], is_mistake)
