"""The benchmarks: one folder each, and this registry.

To add one, write a folder beside these with a subclass of `base.Benchmark`: the record of a
problem, the prompt (`prompt.txt.j2`), where the published problems are, its grader, and if there is
one a maker of embedded problems. Then add it to `BENCHMARKS`. Its keys in params.yaml, its jobs,
its prompts and its columns in reports follow from it.

A completion ends where the policy says so, with its end-of-text token. What it wrote up to there
goes to the grader as it is.
"""

from rapid.benchmarks.base import Benchmark
from rapid.benchmarks.math import Math
from rapid.benchmarks.mbpp_plus import MbppPlus
from rapid.benchmarks.minif2f import MiniF2F

REGISTERED = (MbppPlus(), Math(), MiniF2F())  # in the order of tables
BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in REGISTERED}
