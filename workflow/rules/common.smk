# The validated parameters, the plan of jobs, and the functions that rules look a job up with.

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

from rapid.algorithms import names
from rapid.artifacts.files import BadInput
from rapid.artifacts.layout import STAGES
from rapid.artifacts.manifests import clamp_future_times
from rapid.benchmarks import problem_source
from rapid.benchmarks.prompts import check_templates
from rapid.config import jobs, specs
from rapid.config.params import CHECKPOINT_VARIABLE, LIVE_VARIABLE, REPORT_VARIABLE
from rapid.config.params import load, read
from rapid.console import workflow as console
from rapid.freshness import Examination, discard_checkpoints_of_ended_runs, print_changed_code
from rapid.processes import locks
from rapid.resources import requests
from rapid.resources.leases import usable_cores

# In the order in which Snakemake merged them, which takes the last of a key that is there twice.
CONFIG_FILES = map(os.path.relpath, workflow.config_settings.configfiles)
FILES = [*filter(os.path.exists, [jobs.DEFAULT_FILE]), *CONFIG_FILES]

try:
    read(*FILES)
    PARAMS = load(config, *FILES)
    PLAN = jobs.build_plan(PARAMS)
    if workflow.is_main_process:
        check_templates(PARAMS.benchmarks)
except BadInput as error:
    raise WorkflowError(str(error)) from None
os.environ[CHECKPOINT_VARIABLE] = str(PARAMS.checkpoint_seconds)
os.environ[REPORT_VARIABLE] = PARAMS.logging.report_to
if "DVC_EXP_BASELINE_REV" in os.environ:  # `dvc exp show` has the figures of these while they run
    compared = PLAN.folder(specs.dvc_runs(PARAMS)[0].folder)
    os.environ[LIVE_VARIABLE] = os.path.dirname(compared)

EXAMINATION = Examination(hashed=False)

if workflow.is_main_process:
    declared = [
        problem_source.declared_source(name, benchmark.source)
        for name, benchmark in PARAMS.benchmarks.items()
    ]
    CONSOLE = console.install(
        logger, workflow.output_settings, problem_source.describe_sources(declared)
    )
    print_changed_code(PLAN.jobs)
    if not workflow.output_settings.dryrun:
        locks.hold(Path(".snakemake"))
        discard_checkpoints_of_ended_runs()

# By {root}, the folder below which jobs lie: the experiment's plan, and the default's.
PLANS = {plan.root: plan for plan in (PLAN.default, PLAN) if plan}


# Patterns of wildcards ----------------------------------------------------------------------------


def any_of(names):
    """Return a pattern of these strings; of none, one that matches nothing."""
    escaped = [re.escape(name) for name in dict.fromkeys(names)]
    return f"(?:{'|'.join(escaped)})" if escaped else "(?!)"


def models_that(are_made):
    """Return a pattern of the models that the pipeline makes, or of the published ones."""
    return any_of(
        name
        for plan in PLANS.values()
        for name in plan.params.models
        if specs.is_made(plan.params, name) == are_made
    )


def roots_where(demonstrations_are_made):
    """Return a pattern of the roots whose demonstrations are made, or a teacher's."""
    return any_of(
        root
        for root, plan in PLANS.items()
        if (plan.params.imitation.demonstrations > 0) == demonstrations_are_made
    )


wildcard_constraints:
    root=any_of(PLANS),
    benchmark=any_of(name for plan in PLANS.values() for name in plan.params.benchmarks),
    model=any_of(name for plan in PLANS.values() for name in plan.params.models),
    algorithm=f"{specs.BASE}|{names.build_pattern()}",
    seed=r"\d+",


# Looking up a job by a rule's wildcards. Each returns a function of them, as rules take it. --------


def of_job(rule_name, value):
    """Return a value of the rule's job."""
    folder = STAGES[rule_name].folder
    return lambda wildcards: value(PLANS[wildcards.root].job(folder.format(**wildcards)))


def spec_of(rule_name):
    """Return the part of params.yaml that decides the job's result, as JSON."""
    return of_job(rule_name, lambda job: job.spec.model_dump_json())


def path_of(rule_name, option):
    """Return the paths that an option of the job's command names."""
    return of_job(rule_name, lambda job: job.options[option])


def manifests_behind(rule_name, option):
    """Return the manifests of the jobs whose files an option of the job's command names."""
    return of_job(
        rule_name,
        lambda job: input_files(job, [each.manifest for each in job.inputs_of(option)]),
    )


def sources_of(rule_name):
    """Return the files of the user's that the job reads."""
    return of_job(rule_name, lambda job: input_files(job, job.sources))


def manifests_of(stage):
    """Return the manifests of all jobs of a stage of dvc.yaml that the tables need."""
    return [job.manifest for job in PLAN.jobs if job.stage == stage]


def priority_of(rule_name):
    """Return how soon the job begins."""
    folder = STAGES[rule_name].folder
    return lambda wildcards: PLAN.priority(folder.format(**wildcards))


def threads_of(rule_name):
    """Return the part of --cores that the job takes."""
    return of_job(rule_name, lambda job: count_slots(requests.cores(job.spec)))


def resources_of(rule_name=None):
    """Return the resources of a rule; without a name, of a job that computes little.

    Without a total in the profile none of them limits anything. PyTorch starts its own processes:
    SLURM is to start no task for each GPU.
    """

    def requested(request):
        return of_job(rule_name, lambda job: request(job.spec)) if rule_name else request(None)

    return {
        "gpu": requested(requests.gpus),
        "nodes": requested(requests.nodes),
        "mem_mb": requested(requests.memory_mb),
        "runtime": requested(requests.minutes),
        "tasks_per_gpu": 0,
    }


def count_slots(threads):
    """Return how many of --cores a job takes that leases so many cores.

    --cores may be more than the machine has. A job takes its part of them, so that Snakemake starts
    no job that would only wait for a lease. SLURM counts for itself. To be called when a job is
    planned: before, Snakemake does not know what executes it.
    """
    if not workflow.local_exec or workflow.remote_exec:
        return threads
    return threads * max(1, -(-workflow.cores // len(usable_cores())))


# What is planned: jobs that are not up to date by their manifests, and those behind them. ----------


def input_files(job, files):
    """Return input files of a job. It is planned if its manifest, or one behind it, says so.

    Times and Snakemake's records are lost by a copy, a checkout or a clone: they trigger nothing. A
    job in SLURM reads these rules too: it makes what it was told to.
    """
    if workflow.is_main_process and (why := EXAMINATION.explain(job)):
        CONSOLE.reasons[job.manifest] = why
        workflow.dag.forcefiles.add(job.manifest)
    planned = {input_job.folder for input_job in job.inputs if is_planned(input_job)}
    return [path if os.path.dirname(path) in planned else ancient(path) for path in files]


@cache
def is_planned(job):
    """Return whether a job is done: for its manifest, for one behind it, or by -R, -F or -f."""
    return (
        job.rule in {rule.name for rule in workflow.dag.forcerules}
        or not workflow.dag.forcefiles.isdisjoint(job.declared)
        or (workflow.is_main_process and EXAMINATION.explain(job) != "")
        or any(map(is_planned, job.inputs))
    )
