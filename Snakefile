# From params.yaml to the paper's tables.
#
#    snakemake --cores 4 reports/tables.tex                            the embedded default
#    snakemake --cores 4 --configfile params.yaml experiments/ci.yaml  an experiment: experiments/ci/
#    snakemake --cores 4 evaluations/math/tiny-qwen2/pg/seed1/evaluation.json one run


configfile: "params.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/jobs.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/preflight.smk"


onstart:
    refuse_to_start_in_vain()
    bring_to_present(path for job in workflow.dag.jobs for path in job.input)
    look_when_a_job_ends()
    start_warm_process()


onerror:
    logger.error(CONSOLE.failures())


rule all:
    default_target: True
    input:
        f"{PLAN.job('reports').folder}/tables.tex",


# all_data, all_models, all_distill, all_train, all_evaluate, all_report: the stages of dvc.yaml.
for stage in jobs.STAGES:

    rule:
        name:
            f"all_{stage}"
        input:
            [job.manifest for job in PLAN.jobs if job.stage == stage],
