"""Compare the grader of mathematics with Math-Verify on the same answers.

    python -m tests.beside_math_verify --math train.jsonl [--write]

The answers are hand-judged ones (tests/grading/math/forms), the solutions of a file of MATH, and
its questions restated, which are no answers. Print false positives and false negatives, and keep
them for docs/benchmarks.md with --write. That page has the source of MATH's file.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from math_verify import LatexExtractionConfig, parse, verify

from rapid.artifacts.files import write_json
from rapid.artifacts.manifests import get_commit
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.published import read_problems
from rapid.grading.math.grader import MathGrader
from tests.conftest import ROOT
from tests.grading.math.forms import JudgedForm, judged_forms
from tests.grading.math.respellings import respellings

RESULTS = ROOT / "performance/results/math-graders.json"
SECONDS = 5  # for one answer, in either grader
FEW = 1000  # respelt questions for Math-Verify, which takes a tenth of a second for each
Grade = Callable[[MathProblem, str], bool]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.beside_math_verify", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--math", type=Path, required=True, help="MATH's problems, as JSON lines")
    parser.add_argument("--respellings", type=int, default=20_000, help="of questions (20000)")
    parser.add_argument("--write", action="store_true", help="keep the figures for the documents")
    args = parser.parse_args()
    problems = list(read_problems(args.math, BENCHMARKS["math"]).values())
    respelt_questions = list(respelt(problems, args.respellings))
    sets = {
        "hand-judged answers": list(judged_forms()),
        "MATH's own solutions": [
            JudgedForm(problem, problem.solution, True, "") for problem in problems
        ],
        "restated questions": respelt_questions[:FEW],
        "more restated questions": respelt_questions[FEW:],
    }
    rows = []
    with MathGrader(SECONDS) as grader:
        graders: dict[str, Grade] = {
            "rapid": lambda problem, text: grader.grade(problem, text).reward == 1.0,
            f"Math-Verify {version('math-verify')}": verify_by_math_verify,
        }
        for name, answers in sets.items():
            for grader_name, grade in graders.items():
                if name == "more restated questions" and grade is verify_by_math_verify:
                    continue
                rows.append(measure(name, answers, grader_name, grade))
                print(" | ".join(map(str, rows[-1].values())), flush=True)
    if args.write:
        write_json(RESULTS, {"commit": get_commit(), "rows": rows})


def measure(name: str, answers: list[JudgedForm], grader: str, grade: Grade) -> dict:
    """Return how many answers a grader gets wrong, and its time for one in milliseconds."""
    began = time.perf_counter()
    rewarded = [grade(answer.problem, answer.completion) for answer in answers]
    seconds = time.perf_counter() - began
    pairs = [(got, answer.is_right) for got, answer in zip(rewarded, answers, strict=True)]
    return {
        "answers": name,
        "right": sum(is_right for _, is_right in pairs),
        "wrong": sum(not is_right for _, is_right in pairs),
        "grader": grader,
        "false rewards": sum(got and not is_right for got, is_right in pairs),
        "lost": sum(is_right and not got for got, is_right in pairs),
        "ms": round(1000 * seconds / len(answers), 2),
    }


def verify_by_math_verify(problem: MathProblem, completion: str) -> bool:
    """Return Math-Verify's verdict; it reads LaTeX only, as plain expressions would be evaluated."""
    latex = [LatexExtractionConfig()]
    gold = parse(f"\\boxed{{{problem.answer}}}", extraction_config=latex, parsing_timeout=SECONDS)
    answer = parse(completion, extraction_config=latex, parsing_timeout=SECONDS)
    return verify(gold, answer, timeout_seconds=SECONDS)


def respelt(problems: list[MathProblem], count: int) -> Iterator[JudgedForm]:
    """Yield respelt questions, drawn alike from each problem whose question does not state the answer."""
    rng = random.Random(0)
    pools = []
    for problem in problems:
        texts = list(dict.fromkeys(respellings(problem.problem)))
        rng.shuffle(texts)
        if not states(problem.problem, problem.answer):
            pools.append((problem, texts))
    place = 0
    while count > 0 and any(len(texts) > place for _, texts in pools):
        for problem, texts in pools:
            if len(texts) > place and count > 0:
                yield JudgedForm(problem, f"\\boxed{{{texts[place]}}}", False, "")
                count -= 1
        place += 1


def states(question: str, answer: str) -> bool:
    """Return whether the answer itself is among the formulas of a question."""
    plain = "".join(answer.split())
    return any("".join(text.split()) == plain for text in respellings(question))


if __name__ == "__main__":
    main()
