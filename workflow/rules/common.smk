# The validated parameters, the plan of all jobs, and the functions that rules use to look up a job.

from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

# This process and its jobs use the code in ROOT, the folder of the Snakefile, which may be a copy
# of the repository that `dvc exp run` has made. Jobs use the Python of this process, even if its
# environment is not activated.
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
from rapid.config.params import CHECKPOINT_VARIABLE, LIVE_FOLDER_VARIABLE, REPORT_VARIABLE
from rapid.config.params import load
from rapid.config.sources import order_keys, put_default_file_first
from rapid.console import workflow as console
from rapid.freshness import Examination, discard_checkpoints_of_ended_runs, print_changed_code
from rapid.processes import locks
from rapid.resources import requests
from rapid.resources.leases import list_usable_cores
from reports.labels import check_labels

# The parameter files in the order in which Snakemake merged them: later ones override earlier ones.
CONFIG_FILES = map(os.path.relpath, workflow.config_settings.configfiles)
FILES = put_default_file_first(CONFIG_FILES)

try:
    # This reads the files again, and rejects duplicate keys and templates, which Snakemake accepts.
    PARAMS = load(order_keys(config, *FILES), *FILES)
    PLAN = jobs.build_plan(PARAMS)
    if workflow.is_main_process:
        check_templates(PARAMS.benchmarks)
        check_labels()
except BadInput as error:
    raise WorkflowError(str(error)) from None
os.environ[CHECKPOINT_VARIABLE] = str(PARAMS.checkpoint_seconds)
os.environ[REPORT_VARIABLE] = PARAMS.logging.report_to
if "DVC_EXP_BASELINE_REV" in os.environ:  # `dvc exp run`: runs that it compares report live
    # Their folders, one for each seed, have the same parent.
    run_folder = PLAN.get_folder(specs.list_dvc_runs(PARAMS)[0].folder)
    os.environ[LIVE_FOLDER_VARIABLE] = os.path.dirname(run_folder)

EXAMINATION = Examination(hash_all=False)  # of small files only; finds the jobs to run

if workflow.is_main_process:
    problem_sources = [
        problem_source.build_declared_source(name, benchmark.source)
        for name, benchmark in PARAMS.benchmarks.items()
    ]
    CONSOLE = console.install_console(
        logger, workflow.output_settings, problem_source.describe_sources(problem_sources)
    )
    print_changed_code(PLAN.jobs)
    if not workflow.output_settings.dryrun:
        locks.hold_workflow_lock(Path(".snakemake"))
        discard_checkpoints_of_ended_runs()

# The plans of the experiment and of the default, by the prefix of their jobs' folders, {root}.
PLANS = {plan.root: plan for plan in (PLAN.default, PLAN) if plan}


# Patterns of wildcards ----------------------------------------------------------------------------


def match_any(names):
    """Return a regular expression that matches these strings, and no string if there are none."""
    escaped = [re.escape(name) for name in dict.fromkeys(names)]
    return f"(?:{'|'.join(escaped)})" if escaped else "(?!)"


def match_models(embedded):
    """Return a pattern of the names of embedded models (pre-trained here), or of published ones."""
    return match_any(
        name
        for plan in PLANS.values()
        for name in plan.params.models
        if specs.is_embedded(plan.params, name) == embedded
    )


def match_roots(generated_demonstrations):
    """Return a pattern of the {root} of plans with generated demonstrations, or with a teacher."""
    return match_any(
        root
        for root, plan in PLANS.items()
        # `imitation` is the section of the supervised algorithm. 0: a teacher is sampled instead.
        if (plan.params.imitation.demonstrations > 0) == generated_demonstrations
    )


wildcard_constraints:
    root=match_any(PLANS),
    benchmark=match_any(name for plan in PLANS.values() for name in plan.params.benchmarks),
    model=match_any(name for plan in PLANS.values() for name in plan.params.models),
    algorithm=f"{specs.BASE}|{variant_names.build_name_pattern()}",
    seed=r"\d+",


# Functions that rules call. Most return a function of wildcards, which looks up the rule's job. ---


def look_up_job(rule_name, get_value):
    """Return a function of wildcards that finds the job and returns `get_value(job)`."""
    folder = STAGES[rule_name].folder
    return lambda wildcards: get_value(PLANS[wildcards.root].get_job(folder.format(**wildcards)))


def get_spec(rule_name):
    """Return a function of wildcards: the job's spec (rapid/config/specs.py) as JSON."""
    return look_up_job(rule_name, lambda job: job.spec.model_dump_json())


def get_paths(rule_name, option):
    """Return a function of wildcards: the paths to pass with an option of the job's command."""
    return look_up_job(rule_name, lambda job: job.options[option])


def get_input_manifests(rule_name, option):
    """Return a function of wildcards: the manifests of the jobs whose files an option names."""

    def list_input_manifests(job):
        manifests = [input_job.manifest for input_job in job.get_inputs(option)]
        return plan_input_files(job, manifests)

    return look_up_job(rule_name, list_input_manifests)


def get_sources(rule_name):
    """Return a function of wildcards: the user's files that the job reads."""
    return look_up_job(rule_name, lambda job: plan_input_files(job, job.sources))


def list_manifests(stage):
    """Return the manifests of those jobs of a stage of dvc.yaml that the tables need."""
    return [job.manifest for job in PLAN.jobs if job.stage == stage]


def get_priority(rule_name):
    """Return a function of wildcards: the job's priority. The highest one starts first."""
    folder = STAGES[rule_name].folder
    return lambda wildcards: PLAN.get_priority(folder.format(**wildcards))


def get_threads(rule_name):
    """Return a function of wildcards: the number of Snakemake's --cores that the job takes."""
    return look_up_job(rule_name, lambda job: count_slots(requests.count_cores(job.spec)))


def get_resources(rule_name=None):
    """Return the resources of a rule; without a name, those of a small job.

    Snakemake limits concurrent jobs by a resource only if the profile has a total for it.
    `tasks_per_gpu` is 0, so that SLURM does not start a task for each GPU: PyTorch starts its own
    processes.
    """

    def look_up_request(get_request):
        if rule_name is None:
            return get_request(None)
        return look_up_job(rule_name, lambda job: get_request(job.spec))

    return {
        "gpu": look_up_request(requests.count_gpus),
        "nodes": look_up_request(requests.count_nodes),
        "mem_mb": look_up_request(requests.get_memory_limit_mb),
        "runtime": look_up_request(requests.get_time_limit_minutes),
        "tasks_per_gpu": 0,
    }


def count_slots(threads):
    """Return how many of Snakemake's --cores a job takes that leases `threads` cores.

    A lease reserves a core for one job (rapid/resources/leases.py).
    If --cores is larger than the number of the machine's cores, a job takes a proportional share of
    --cores. Otherwise Snakemake would start jobs that have to wait for a lease. With SLURM the
    result is `threads`. Call this only when a job is planned, because until then Snakemake does not
    know whether jobs run locally.
    """
    if not workflow.local_exec or workflow.remote_exec:
        return threads
    return threads * max(1, -(-workflow.cores // len(list_usable_cores())))


# Planning: jobs whose manifests are not up to date, and jobs that depend on them. -----------------


def plan_input_files(job, files):
    """Return the input files of a job, and make Snakemake plan the job if it or an input is stale.

    rapid/freshness.py decides by manifests whether a job is stale, not by times of files, which
    copies, checkouts and clones lose. So inputs are marked as `ancient` (Snakemake then ignores
    their times), except those that other planned jobs will write. The Snakemake process inside a
    SLURM job reads these rules too, but plans no job.
    """
    if workflow.is_main_process and (reason := EXAMINATION.explain(job)):
        CONSOLE.reasons[job.manifest] = reason
        workflow.dag.forcefiles.add(job.manifest)
    planned = {input_job.folder for input_job in job.inputs if is_planned(input_job)}
    return [path if os.path.dirname(path) in planned else ancient(path) for path in files]


@cache
def is_planned(job):
    """Return whether a job will run: it or an input is stale, or -R, -F or -f asks for it."""
    return (
        job.rule in {rule.name for rule in workflow.dag.forcerules}
        or not workflow.dag.forcefiles.isdisjoint(job.declared_outputs)
        or (workflow.is_main_process and EXAMINATION.explain(job) != "")
        or any(map(is_planned, job.inputs))
    )
