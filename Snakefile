# The pipeline from params.yaml to the paper's tables.
#
#    snakemake --cores 4 reports/tables.tex                            the default: params.yaml
#    snakemake --cores 4 --configfile params.yaml experiments/ci.yaml  an experiment
#    snakemake --cores 4 evaluations/math/tiny-qwen2/pg/seed1/evaluation.json  one run
#    snakemake --list-target-rules                                     other targets
#
# Each stage is one rule, which calls a subcommand of `rapid` or a module of reports/. Rules are in
# workflow/rules/, one file per phase (a stage of dvc.yaml); add yours there, and an `include` of a
# new file below. docs/extending.md lists what else a stage needs. rapid/config/jobs.py computes the
# inputs and the parameters of a job. A rule does not declare the large files of a job as outputs:
# the job's manifest.json has their digests, and other rules depend on the manifest. The wildcard
# {root} is experiments/NAME/ in an experiment with a name, and empty otherwise. In a command,
# RAPID_WORKFLOW=$PPID makes the job end with the workflow (rapid/processes/lifetimes.py).


configfile: "params.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/distill.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report_functions.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/preflight.smk"
include: "workflow/rules/start.smk"


onstart:
    check_requirements()
    clamp_future_times(path for job in workflow.dag.jobs for path in job.input)
    remove_start_limit()
    start_fork_server()


onerror:
    logger.error(CONSOLE.render_failures())


# Targets: everything, or the jobs of one phase (a stage of dvc.yaml). -----------------------------


rule all:
    """Make the paper's tables, and all jobs that they need (the default)."""
    default_target: True
    input:
        f"{PLAN.get_job('reports').folder}/tables.tex",


rule all_data:
    """Make the problems of all benchmarks."""
    input:
        list_manifests("data"),


rule all_models:
    """Make the models before training, and the teacher."""
    input:
        list_manifests("models"),


rule all_distill:
    """Make the demonstrations for SFT."""
    input:
        list_manifests("distill"),


rule all_train:
    """Train every run of the tables."""
    input:
        list_manifests("train"),


rule all_evaluate:
    """Evaluate every run of the tables, and the models before training."""
    input:
        list_manifests("evaluate"),


rule all_report:
    """Make the tables, figures and metrics."""
    input:
        list_manifests("report"),
