"""Compare the grader of mathematics with Math-Verify on the same answers.

    python -m tests.beside_math_verify --math train.jsonl [--write]

The answers are of three kinds: hand-judged ones (tests/grading/math/forms), the solutions in a file
of MATH, and MATH's questions in other spellings, which must not be rewarded. The command prints the
false positives and false negatives of each grader. With --write it saves them for
docs/benchmarks.md.
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
from tests.grading.math.forms import JudgedForm, load_judged_forms
from tests.grading.math.respellings import respell

RESULTS = ROOT / "performance/results/math-graders.json"
SECONDS = 5  # time limit for one answer, in either grader
MATH_VERIFY_COUNT = 1000  # respelt questions that Math-Verify grades, which takes 0.1 s for each
Grade = Callable[[MathProblem, str], bool]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.beside_math_verify", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--math", type=Path, required=True, help="MATH's problems, as JSON lines")
    parser.add_argument(
        "--respellings", type=int, default=20_000,
        help="number of questions in other spellings (default: 20000)",
    )  # fmt: skip
    parser.add_argument("--write", action="store_true", help="save the counts for the documents")
    args = parser.parse_args()
    problems = list(read_problems(args.math, BENCHMARKS["math"]).values())
    respelt_questions = list(respell_questions(problems, args.respellings))
    sets = {
        "hand-judged answers": list(load_judged_forms()),
        "MATH's own solutions": [
            JudgedForm(problem, problem.solution, True, "") for problem in problems
        ],
        "restated questions": respelt_questions[:MATH_VERIFY_COUNT],
        "more restated questions": respelt_questions[MATH_VERIFY_COUNT:],
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


def measure(answers_name: str, answers: list[JudgedForm], grader_name: str, grade: Grade) -> dict:
    """Return how many answers a grader judges wrongly, and the milliseconds that an answer takes."""
    began = time.perf_counter()
    rewarded = [grade(answer.problem, answer.completion) for answer in answers]
    seconds = time.perf_counter() - began
    pairs = [
        (is_rewarded, answer.is_right)
        for is_rewarded, answer in zip(rewarded, answers, strict=True)
    ]
    return {
        "answers": answers_name,
        "right": sum(is_right for _, is_right in pairs),
        "wrong": sum(not is_right for _, is_right in pairs),
        "grader": grader_name,
        "false rewards": sum(is_rewarded and not is_right for is_rewarded, is_right in pairs),
        "lost": sum(is_right and not is_rewarded for is_rewarded, is_right in pairs),
        "ms": round(1000 * seconds / len(answers), 2),
    }


def verify_by_math_verify(problem: MathProblem, completion: str) -> bool:
    """Return Math-Verify's verdict. It reads LaTeX only, because it would evaluate plain expressions."""
    latex = [LatexExtractionConfig()]
    gold = parse(f"\\boxed{{{problem.answer}}}", extraction_config=latex, parsing_timeout=SECONDS)
    answer = parse(completion, extraction_config=latex, parsing_timeout=SECONDS)
    return verify(gold, answer, timeout_seconds=SECONDS)


def respell_questions(problems: list[MathProblem], count: int) -> Iterator[JudgedForm]:
    """Yield respelt questions, equally many of each problem whose question does not state the answer."""
    rng = random.Random(0)
    pools = []
    for problem in problems:
        texts = list(dict.fromkeys(respell(problem.problem)))
        rng.shuffle(texts)
        if not states_answer(problem.problem, problem.answer):
            pools.append((problem, texts))
    index = 0
    while count > 0 and any(len(texts) > index for _, texts in pools):
        for problem, texts in pools:
            if len(texts) > index and count > 0:
                yield JudgedForm(problem, f"\\boxed{{{texts[index]}}}", False, "")
                count -= 1
        index += 1


def states_answer(question: str, answer: str) -> bool:
    """Return whether the answer itself is among the formulas of a question or their spellings."""
    compact_answer = "".join(answer.split())
    return any("".join(text.split()) == compact_answer for text in respell(question))


if __name__ == "__main__":
    main()
