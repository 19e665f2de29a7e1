# The validated parameters, and what several rules need of them.

import subprocess
import tempfile
import time

from snakemake.exceptions import WorkflowError

# The code beside this Snakefile, in this process and in its jobs: `dvc exp run` runs copies of it.
sys.path.insert(0, workflow.basedir)
os.environ.update(PYTHONPATH=workflow.basedir)

from rapid.config import jobs, specs
from rapid.stages import fetch as models
from rapid.machine import preflight, resources, warm
from rapid.algorithms import names
from rapid.artifacts.freshness import NOTE, say_changed_code
from rapid.machine.lease import usable_cores
from rapid.config.params import BadParams, load

try:
    PARAMS = load(config)
except BadParams as error:
    raise WorkflowError(str(error)) from None

JOBS = jobs.jobs(PARAMS)
if workflow.is_main_process:
    say_changed_code(JOBS)


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


def prepare_spec(wildcards):
    return specs.prepare_spec(PARAMS, wildcards.benchmark)


def distill_spec(wildcards):
    return specs.distill_spec(PARAMS, wildcards.benchmark)


def train_spec(wildcards):
    return specs.train_spec(PARAMS, run_of(wildcards))


def evaluate_spec(wildcards):
    return specs.evaluate_spec(PARAMS, run_of(wildcards))


def tokenizer_spec(wildcards):
    return specs.tokenizer_spec(PARAMS)


def model_spec(wildcards):
    return specs.model_spec(PARAMS, wildcards.model)


def slots(threads):
    """How many of --cores a job takes that leases so many cores.

    --cores may be more than the machine has. A job takes its part of them, so that Snakemake starts
    no job that would only wait for a lease. SLURM counts for itself. To be called when a job is
    planned: before, Snakemake does not know what executes it.
    """
    if not workflow.local_exec or workflow.remote_exec:
        return threads
    return threads * max(1, -(-workflow.cores // len(usable_cores())))


def needs(spec_of=lambda wildcards: None):
    """The resources of a rule whose jobs have these specs, by wildcards; None computes little.

    Without a total in the profile none of them limits anything. PyTorch starts its own processes:
    SLURM is to start no task for each GPU.
    """
    return {
        "gpu": lambda wildcards: resources.gpus(spec_of(wildcards)),
        "nodes": lambda wildcards: resources.nodes(spec_of(wildcards)),
        "mem_mb": lambda wildcards: resources.memory_mb(spec_of(wildcards)),
        "runtime": lambda wildcards: resources.minutes(spec_of(wildcards)),
        "tasks_per_gpu": 0,
    }


def start_warm_process():
    """Start the process that this workflow's jobs are forked from; it ends with this one.

    Not for jobs elsewhere: SLURM accounts for what it has started itself. Nor for jobs on GPUs, which
    take hours: a process that initialised CUDA, as an import may, cannot be forked. Nor for vLLM, which
    starts threads of its own.
    """
    os.environ.pop(warm.VARIABLE, None)
    compute = PARAMS.compute
    if not workflow.local_exec or compute.device != "cpu" or compute.sampler != "transformers":
        return
    os.makedirs("logs", exist_ok=True)
    path = os.path.join(tempfile.mkdtemp(prefix="rapid-warm-"), "socket")
    with open("logs/warm.log", "w") as log:
        command = [sys.executable, *"-m rapid warm".split(), path, str(os.getpid())]
        subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    os.environ[warm.VARIABLE] = path


def refuse_to_start_in_vain():
    """Where jobs take hours: end before the first if something that they need is missing.

    Whether machines that SLURM chooses have what a job needs is SLURM's to say, or `preflight`'s.
    """
    elsewhere = not workflow.local_exec
    if PARAMS.compute.device == "cpu" and not elsewhere or os.environ.get("RAPID_PREFLIGHT") == "off":
        return
    if preflight.report(preflight.checks(PARAMS, machine=not elsewhere)):
        raise WorkflowError("See MISSING above. With RAPID_PREFLIGHT=off jobs start all the same.")
