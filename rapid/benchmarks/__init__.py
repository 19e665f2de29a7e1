"""The benchmarks: one folder each, and this registry.

To add one, write a folder beside these with a subclass of `base.Benchmark`: the record of a
problem, the prompt (`prompt.txt.j2`), the source of published problems, the grader, and optionally
a maker of embedded problems. Then add it to `REGISTERED`. Its keys in params.yaml, its jobs, its
prompts and its columns in reports follow from it.

A completion ends with the policy's end-of-text token. The text before it goes to the grader
unchanged.
"""

from rapid.benchmarks.base import Benchmark
from rapid.benchmarks.math import Math
from rapid.benchmarks.mbpp_plus import MbppPlus
from rapid.benchmarks.minif2f import MiniF2F

REGISTERED = (MbppPlus(), Math(), MiniF2F())  # in the order of tables
BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in REGISTERED}
