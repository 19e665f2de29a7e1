"""Forms of answers with the verdicts that they deserve, each judged by hand before it was graded.

- `reported.jsonl`: forms of the kinds that public bug reports describe.
- `written.jsonl`: forms written to test the grammar, half of them for problems of MATH.
- `spelt.jsonl`: different spellings of right answers.
- `attacked.jsonl`: attacks that were written with knowledge of the grader's code.
- `unseen.jsonl`: forms that were written from docs/benchmarks.md alone, and after which the grader was
  not changed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rapid.benchmarks.math.record import MathProblem


class JudgedForm(NamedTuple):
    """A problem, a completion with a form of its answer, and the verdict that it deserves.

    Args:
        kind: what the form is an example of; "" for none.
        is_mistake: whether the grader is known to give the other verdict.
    """

    problem: MathProblem
    completion: str
    is_right: bool
    kind: str
    is_mistake: bool = False


def load_judged_forms() -> Iterator[JudgedForm]:
    for path in sorted(Path(__file__).parent.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            row = json.loads(line)
            problem = MathProblem(
                unique_id=f"{path.stem}/{number}", problem=row["problem"], answer=row["answer"]
            )
            completion = f"\\boxed{{{row['form']}}}"
            is_mistake = row.get("mistake", False)
            yield JudgedForm(problem, completion, bool(row["right"]), row["kind"], is_mistake)
