# The validated parameters, and what several rules need of them.

from snakemake.exceptions import WorkflowError

from rapid import specs
from rapid.params import BadParams, load

try:
    PARAMS = load(config)
except BadParams as error:
    raise WorkflowError(str(error)) from None


wildcard_constraints:
    benchmark="|".join(PARAMS.benchmarks),
    model="|".join(map(re.escape, PARAMS.models)),
    seed=r"\d+",


def run_of(wildcards):
    """The run that a run's folder names."""
    return specs.Run(
        benchmark=wildcards.benchmark,
        model=wildcards.model,
        algorithm=wildcards.get("algorithm", specs.BASE),
        seed=int(wildcards.seed),
    )
