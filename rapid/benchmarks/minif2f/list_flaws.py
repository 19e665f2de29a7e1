"""List the problems of a file whose statements have known flaws (flaws.yaml).

python -m rapid.benchmarks.minif2f.list_flaws minif2f.jsonl
"""

import sys
from collections import Counter
from pathlib import Path

from rapid.arguments import Parser
from rapid.artifacts.files import BadInput
from rapid.benchmarks.minif2f import MiniF2F
from rapid.benchmarks.published import read_problems


def main(arguments: list[str] | None = None) -> int:
    """Print the flawed problems of a file, and how many there are in each split."""
    command = "python -m rapid.benchmarks.minif2f.list_flaws"
    parser = Parser(prog=command, description=__doc__.splitlines()[0])
    parser.add_argument("problems", type=Path, help="miniF2F rows, .jsonl or .jsonl.gz")
    args = parser.parse_args(arguments)
    try:
        problems = read_problems(args.problems, MiniF2F())
    except FileNotFoundError:
        parser.error(f"{args.problems} does not exist")
    except BadInput as error:
        parser.error(str(error))
    flawed = [problem for problem in problems.values() if problem.flaw]
    for problem in flawed:
        print(f"{problem.id} ({problem.split or 'no split'}): {problem.flaw}")
    totals = Counter(problem.split for problem in problems.values())
    counts = Counter(problem.split for problem in flawed)
    for split, total in totals.items():
        place = f"split {split}" if split else "no split"
        print(f"{place}: {counts[split]} of {total} statements have known flaws")
    return 0


if __name__ == "__main__":
    sys.exit(main())
