# The validated parameters, and what several rules need of them.

import subprocess
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

# The code of this folder, in this process and in its jobs: `dvc exp run` runs copies of it.
# And the python of this process, be its environment activated or not.
ROOT = str(Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parents[1])
sys.path.insert(0, ROOT)
PROGRAMS = os.pathsep.join([os.path.dirname(sys.executable), *os.get_exec_path()])
os.environ.update(PYTHONPATH=ROOT, PATH=PROGRAMS)
os.environ.setdefault("TQDM_MININTERVAL", "10")  # seconds: a log keeps every line of a progress bar

from rapid.config import jobs, specs
from rapid.cost.estimates import too_large
from rapid.console import workflow as console
from rapid.processes import locks
from rapid import preflight
from rapid.processes import lifetimes as processes
from rapid.resources import requests as resources
from rapid.processes import fork_server as warm
from rapid.algorithms import names
from rapid.artifacts.files import BadInput
from rapid.freshness import (
    DECLARED,
    Examination,
    discard_checkpoints_of_ended_runs,
    say_changed_code,
)
from rapid.benchmarks import problem_source
from rapid.benchmarks.prompts import check_templates
from rapid.resources.leases import usable_cores
from rapid.artifacts.manifests import bring_to_present
from rapid.config.params import CHECKPOINT_VARIABLE, LIVE_VARIABLE, REPORT_VARIABLE
from rapid.config.params import load, read

# In the order in which Snakemake merged them, which takes the last of a key that is there twice.
GIVEN = map(os.path.relpath, workflow.config_settings.configfiles)
FILES = [*filter(os.path.exists, [jobs.DEFAULT]), *GIVEN]

try:
    read(*FILES)
    PARAMS = load(config, *FILES)
    PLAN = jobs.plan(PARAMS)
    if workflow.is_main_process:
        check_templates(PARAMS.benchmarks)
except BadInput as error:
    raise WorkflowError(str(error)) from None
os.environ[CHECKPOINT_VARIABLE] = str(PARAMS.checkpoint_seconds)
os.environ[REPORT_VARIABLE] = PARAMS.logging.report_to
if "DVC_EXP_BASELINE_REV" in os.environ:  # `dvc exp show` has the figures of these while they run
    compared = PLAN.folder(specs.compared(PARAMS)[0].folder)
    os.environ[LIVE_VARIABLE] = os.path.dirname(compared)

EXAMINATION = Examination(hashed=False)

if workflow.is_main_process:
    declared = [
        problem_source.declared_source(name, benchmark.source)
        for name, benchmark in PARAMS.benchmarks.items()
    ]
    CONSOLE = console.install(
        logger, workflow.output_settings, problem_source.describe(declared)
    )
    say_changed_code(PLAN.jobs)
    if not workflow.output_settings.dryrun:
        locks.hold(Path(".snakemake"))
        discard_checkpoints_of_ended_runs()

# By {root}, the folder below which jobs lie: the experiment's plan, and the default's.
PLANS = {plan.root: plan for plan in (PLAN.default, PLAN) if plan}


def small_files(command):
    """Return the names of the files that a job declares; the large ones stay undeclared."""
    return ["manifest.json", *DECLARED.get(command, ())]


def any_of(found):
    """Return a pattern of these strings."""
    return f"(?:{'|'.join(map(re.escape, dict.fromkeys(found))) if found else '(?!)'})"


def models_of(command):
    """Return a pattern of the models that a subcommand is for."""
    made = {"pretrain": [True], "fetch": [False]}.get(command, [True, False])
    found = [(plan.params, name) for plan in PLANS.values() for name in plan.params.models]
    return any_of([name for params, name in found if specs.is_made(params, name) in made])


wildcard_constraints:
    root=any_of(PLANS),
    benchmark=any_of([name for plan in PLANS.values() for name in plan.params.benchmarks]),
    algorithm=f"{specs.BASE}|{names.pattern()}",
    seed=r"\d+",


def of_job(place, value):
    """Return a function of a rule's wildcards: a value of the job that lies at this place."""
    return lambda wildcards: value(PLANS[wildcards.root].job(place.format(**wildcards)))


def turn(place):
    """Return a function of a rule's wildcards: the priority of the job that lies at this place."""
    return lambda wildcards: PLAN.priority(place.format(**wildcards))


def inputs(job):
    """Return what a job depends on: other jobs' manifests, and files of the user's."""
    return depend(job, [each.manifest for each in job.inputs], job.sources)


def depend(job, made, sources=()):
    """Have a job planned if its manifest, or one behind it, says so; return what it depends on.

    Times and Snakemake's records are lost by a copy, a checkout or a clone: they trigger nothing. A
    job in SLURM reads these rules too: it makes what it was told to.

    Args:
        made: files that other jobs write.
        sources: files of the user's.
    """
    if workflow.is_main_process and (why := EXAMINATION.explain(job)):
        CONSOLE.reasons[job.manifest] = why
        workflow.dag.forcefiles.add(job.manifest)
    again = {each.folder for each in job.inputs if is_planned(each)}
    return [path if os.path.dirname(path) in again else ancient(path) for path in (*made, *sources)]


@cache
def is_planned(job):
    """Return whether a job is done: for its manifest, for one behind it, or by -R, -F or -f."""
    rules = {rule.name for rule in workflow.dag.forcerules}
    return (
        job.command.split()[0] in rules
        or not workflow.dag.forcefiles.isdisjoint(job.declared)
        or (workflow.is_main_process and EXAMINATION.explain(job) != "")
        or any(map(is_planned, job.inputs))
    )


def slots(threads):
    """Return how many of --cores a job takes that leases so many cores.

    --cores may be more than the machine has. A job takes its part of them, so that Snakemake starts
    no job that would only wait for a lease. SLURM counts for itself. To be called when a job is
    planned: before, Snakemake does not know what executes it.
    """
    if not workflow.local_exec or workflow.remote_exec:
        return threads
    return threads * max(1, -(-workflow.cores // len(usable_cores())))


def needs(place=None):
    """Return the resources of a rule whose jobs lie at this place; None computes little.

    Without a total in the profile none of them limits anything. PyTorch starts its own processes:
    SLURM is to start no task for each GPU.
    """

    def asked(ask):
        return of_job(place, lambda job: ask(job.spec)) if place else ask(None)

    return {
        "gpu": asked(resources.gpus),
        "nodes": asked(resources.nodes),
        "mem_mb": asked(resources.memory_mb),
        "runtime": asked(resources.minutes),
        "tasks_per_gpu": 0,
    }


def start_warm_process():
    """Start the process that this workflow's jobs are forked from; it ends with this one.

    There is none for jobs elsewhere: SLURM accounts for what it has started itself. There is none
    for jobs on GPUs: a process that initialised CUDA, as an import may, cannot be forked. There is
    none for vLLM, which starts threads of its own.
    """
    os.environ.pop(warm.VARIABLE, None)
    compute = PARAMS.compute
    if not workflow.local_exec or compute.device != "cpu" or compute.sampler != "transformers":
        return
    os.makedirs(f"{PLAN.root}logs", exist_ok=True)
    path = Path(".snakemake", locks.SOCKETS, str(os.getpid()))  # relative: no socket's may be long
    path.parent.mkdir(exist_ok=True)
    with open(f"{PLAN.root}logs/warm.log", "w") as log:
        command = [sys.executable, *"-m rapid warm".split(), str(path), str(os.getpid())]
        ours = {**os.environ, processes.WORKFLOW: str(os.getpid())}
        subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=ours)
    os.environ[warm.VARIABLE] = str(path)


def look_when_a_job_ends():
    """Drop Snakemake's default limit of 100 jobs started in a second; another one stays.

    For a limit, Snakemake looks at all that could start once more a second after each look, for
    ever: after n jobs it looks n times a second, and takes that time from the jobs.
    """
    limit = workflow.scheduler.job_rate_limiter
    if limit and (limit.max_jobs, limit.timespan) == (100, 1):
        workflow.scheduler.job_rate_limiter = None


def refuse_to_start_in_vain():
    """End before the first job if something is missing: where jobs take hours, anything of theirs.

    Whether machines that SLURM chooses have what a job needs is SLURM's to say, or `preflight`'s.
    """
    here = workflow.local_exec
    if os.environ.get("RAPID_PREFLIGHT") == "off":
        return
    takes_minutes = PARAMS.compute.device == "cpu" and here
    all_checks = preflight.checks(PARAMS, here, too_large)
    if preflight.report(preflight.reporting(PARAMS) if takes_minutes else all_checks):
        raise WorkflowError("See MISSING above. With RAPID_PREFLIGHT=off jobs start all the same.")
