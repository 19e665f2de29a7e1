"""The benchmarks: one folder each, and this registry.

To add a benchmark, write a folder next to this file with a subclass of `base.Benchmark`, and add an
instance to `REGISTERED`. The subclass declares the record of a problem, the prompt
(`prompt.txt.j2`), the source of published problems, the grader, and optionally a function that
generates problems from a seed. Keys in params.yaml, jobs and columns in reports follow from the
registry.

The grader gets the text of a completion unchanged, up to the policy's end-of-text token.
"""

from rapid.benchmarks.base import Benchmark
from rapid.benchmarks.math import Math
from rapid.benchmarks.mbpp_plus import MbppPlus
from rapid.benchmarks.minif2f import MiniF2F

REGISTERED = (MbppPlus(), Math(), MiniF2F())  # in the order of tables
BENCHMARKS: dict[str, Benchmark] = {benchmark.name: benchmark for benchmark in REGISTERED}
