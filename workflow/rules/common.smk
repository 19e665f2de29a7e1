# The validated parameters, the plan of all jobs, and the functions that rules use to look up a job.

from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

# This process and its jobs use the code of this folder, because `dvc exp run` runs the workflow in
# a copy of the repository. Jobs use the Python of this process, even if its environment is not
# activated.
ROOT = str(Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parents[1])
sys.path.insert(0, ROOT)
PROGRAMS = os.pathsep.join([os.path.dirname(sys.executable), *os.get_exec_path()])
os.environ.update(PYTHONPATH=ROOT, PATH=PROGRAMS)
os.environ.setdefault("TQDM_MININTERVAL", "10")  # seconds: a log keeps every line of a progress bar

from rapid.algorithms import variant_names
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
from rapid.resources.leases import list_usable_cores
from reports.labels import check_labels

# The parameter files in the order in which Snakemake merged them: later ones override earlier ones.
CONFIG_FILES = map(os.path.relpath, workflow.config_settings.configfiles)
FILES = [*filter(os.path.exists, [jobs.DEFAULT_FILE]), *CONFIG_FILES]

try:
    read(*FILES)
    PARAMS = load(config, *FILES)
    PLAN = jobs.build_plan(PARAMS)
    if workflow.is_main_process:
        check_templates(PARAMS.benchmarks)
        check_labels()
except BadInput as error:
    raise WorkflowError(str(error)) from None
os.environ[CHECKPOINT_VARIABLE] = str(PARAMS.checkpoint_seconds)
os.environ[REPORT_VARIABLE] = PARAMS.logging.report_to
if "DVC_EXP_BASELINE_REV" in os.environ:  # in `dvc exp run`: report these runs while they train
    compared = PLAN.folder(specs.dvc_runs(PARAMS)[0].folder)
    os.environ[LIVE_VARIABLE] = os.path.dirname(compared)

EXAMINATION = Examination(hash_all=False)

if workflow.is_main_process:
    declared = [
        problem_source.declared_source(name, benchmark.source)
        for name, benchmark in PARAMS.benchmarks.items()
    ]
    CONSOLE = console.install_console(
        logger, workflow.output_settings, problem_source.describe_sources(declared)
    )
    print_changed_code(PLAN.jobs)
    if not workflow.output_settings.dryrun:
        locks.hold_workflow_lock(Path(".snakemake"))
        discard_checkpoints_of_ended_runs()

# The plans of the experiment and of the default, by the prefix of their jobs' folders, {root}.
PLANS = {plan.root: plan for plan in (PLAN.default, PLAN) if plan}


# Patterns of wildcards ----------------------------------------------------------------------------


def match_any(names):
    """Return a regular expression that matches these strings; if there are none, it never does."""
    escaped = [re.escape(name) for name in dict.fromkeys(names)]
    return f"(?:{'|'.join(escaped)})" if escaped else "(?!)"


def match_models(embedded):
    """Return a pattern of the embedded models, which the pipeline pretrains, or of the others."""
    return match_any(
        name
        for plan in PLANS.values()
        for name in plan.params.models
        if specs.is_embedded(plan.params, name) == embedded
    )


def match_roots(generated_demonstrations):
    """Return a pattern of the roots of plans with generated demonstrations, or with a teacher's."""
    return match_any(
        root
        for root, plan in PLANS.items()
        if (plan.params.imitation.demonstrations > 0) == generated_demonstrations
    )


wildcard_constraints:
    root=match_any(PLANS),
    benchmark=match_any(name for plan in PLANS.values() for name in plan.params.benchmarks),
    model=match_any(name for plan in PLANS.values() for name in plan.params.models),
    algorithm=f"{specs.BASE}|{variant_names.build_name_pattern()}",
    seed=r"\d+",


# Functions that rules call. Most return a function of wildcards, which looks up the rule's job. ---


def of_job(rule_name, value):
    """Return a function of wildcards that finds the rule's job and returns `value(job)`."""
    folder = STAGES[rule_name].folder
    return lambda wildcards: value(PLANS[wildcards.root].job(folder.format(**wildcards)))


def spec_of(rule_name):
    """Return a function of wildcards for the job's spec (see rapid/config/specs.py) as JSON."""
    return of_job(rule_name, lambda job: job.spec.model_dump_json())


def path_of(rule_name, option):
    """Return a function of wildcards for the paths that an option of the job's command names."""
    return of_job(rule_name, lambda job: job.options[option])


def input_manifests_of(rule_name, option):
    """Return a function of wildcards for the manifests of the jobs whose files an option names."""
    return of_job(
        rule_name,
        lambda job: input_files(job, [input_job.manifest for input_job in job.inputs_of(option)]),
    )


def sources_of(rule_name):
    """Return a function of wildcards for the user's files that the job reads."""
    return of_job(rule_name, lambda job: input_files(job, job.sources))


def manifests_of(stage):
    """Return the manifests of all jobs of a stage of dvc.yaml that the tables need."""
    return [job.manifest for job in PLAN.jobs if job.stage == stage]


def priority_of(rule_name):
    """Return a function of wildcards for the job's priority; the highest ready job starts first."""
    folder = STAGES[rule_name].folder
    return lambda wildcards: PLAN.priority(folder.format(**wildcards))


def threads_of(rule_name):
    """Return a function of wildcards for the number of --cores that the job takes."""
    return of_job(rule_name, lambda job: count_slots(requests.count_cores(job.spec)))


def resources_of(rule_name=None):
    """Return the resources of a rule; without a name, those of a small job.

    Snakemake limits concurrent jobs by a resource only if the profile has a total for it.
    `tasks_per_gpu` is 0, so that SLURM does not start a task for each GPU: PyTorch starts its own
    processes.
    """

    def requested(request):
        return of_job(rule_name, lambda job: request(job.spec)) if rule_name else request(None)

    return {
        "gpu": requested(requests.count_gpus),
        "nodes": requested(requests.count_nodes),
        "mem_mb": requested(requests.get_memory_limit_mb),
        "runtime": requested(requests.get_time_limit_minutes),
        "tasks_per_gpu": 0,
    }


def count_slots(threads):
    """Return how many of Snakemake's --cores a job takes that leases `threads` cores.

    --cores may be larger than the number of cores of the machine. A job then takes a proportional
    share, so that Snakemake does not start jobs that could only wait for a lease. With SLURM the
    number of threads is right as it is. This must be called when a job is planned, because before
    that Snakemake does not know whether jobs run locally.
    """
    if not workflow.local_exec or workflow.remote_exec:
        return threads
    return threads * max(1, -(-workflow.cores // len(list_usable_cores())))


# Planning: jobs whose manifests are not up to date, and jobs that depend on them. -----------------


def input_files(job, files):
    """Return the input files of a job, and make Snakemake plan the job if it or an input is stale.

    rapid/freshness.py decides that by manifests. Times of files trigger no job, because a copy, a
    checkout or a clone loses them: inputs are marked as `ancient`, except inputs that other planned
    jobs will write. The Snakemake process inside a SLURM job reads these rules too, but plans no
    job.
    """
    if workflow.is_main_process and (why := EXAMINATION.explain(job)):
        CONSOLE.reasons[job.manifest] = why
        workflow.dag.forcefiles.add(job.manifest)
    planned = {input_job.folder for input_job in job.inputs if is_planned(input_job)}
    return [path if os.path.dirname(path) in planned else ancient(path) for path in files]


@cache
def is_planned(job):
    """Return whether a job will run: it is stale, a job before it will run, or -R, -F or -f."""
    return (
        job.rule in {rule.name for rule in workflow.dag.forcerules}
        or not workflow.dag.forcefiles.isdisjoint(job.declared)
        or (workflow.is_main_process and EXAMINATION.explain(job) != "")
        or any(map(is_planned, job.inputs))
    )
