# Tables, figures and report.html, from the runs' small files.

from reports.plots import FIGURES, study_figures

REPORTED = [f"{run.folder}/summary.json" for run in specs.runs(PARAMS)] + [
    f"{run.evaluation}/evaluation.json" for run in specs.evaluations(PARAMS)
]

STUDIED = [f"{run.folder}/summary.json" for run in specs.studied(PARAMS)] + [
    f"{run.evaluation}/evaluation.json" for run in specs.evaluated(specs.studied(PARAMS))
]

# Snakemake does not miss a file that was deleted while what it went into is there. This note is an
# input that changes when one is. A job in SLURM reads these rules too, and leaves it alone.
missing = [
    path
    for files, made in ((REPORTED, "reports/tables.tex"), (STUDIED, "reports/studies/tables.tex"))
    if os.path.exists(made)
    for path in files
    if not os.path.exists(path)
]
if (missing or not os.path.exists(NOTE)) and workflow.is_main_process:
    os.makedirs("logs", exist_ok=True)
    with open(NOTE, "w") as note:
        note.write("\n".join([f"missing at {time.time()}:", *missing]))


rule report:
    input:
        REPORTED,
        [job.manifest for job in JOBS if job.stage in ("distill", "train", "evaluate")],
        note=NOTE,
    output:
        "reports/manifest.json",
        "reports/appendix.tex",
        "reports/appendix.txt",
        figures=expand("reports/figures/{name}.{kind}", name=FIGURES, kind=["pdf", "png"]),
        tex="reports/tables.tex",
        text="reports/tables.txt",
        html="reports/report.html",
    params:
        config=PARAMS.model_dump_json(),
        figures=lambda wildcards, output: os.path.dirname(output.figures[0]),
    resources:
        **needs(),
    log:
        "logs/report.log",
    benchmark:
        "benchmarks/report.tsv"
    shell:
        "python -m reports --config {params.config:q} --output {output.tex} --html {output.html}"
        " --figures {params.figures} 2> {log}"


rule studies:
    input:
        STUDIED,
        [f"{run.folder}/manifest.json" for run in specs.studied(PARAMS)],
        note=NOTE,
    output:
        "reports/studies/manifest.json",
        figures=expand(
            "reports/studies/figures/{name}.{kind}", name=study_figures(PARAMS), kind=["pdf", "png"]
        ),
        tex="reports/studies/tables.tex",
        text="reports/studies/tables.txt",
        html="reports/studies/report.html",
    params:
        config=PARAMS.model_dump_json(),
        figures=lambda wildcards, output: os.path.dirname(output.figures[0]),
    log:
        "logs/studies.log",
    benchmark:
        "benchmarks/studies.tsv"
    shell:
        "python -m reports --studies --config {params.config:q} --output {output.tex}"
        " --html {output.html} --figures {params.figures} 2> {log}"


# The figures of one H, for `dvc exp show` and `dvc plots`.
rule experiment:
    input:
        [f"{run.folder}/manifest.json" for run in specs.compared(PARAMS)],
        [f"{run.evaluation}/manifest.json" for run in specs.compared(PARAMS)],
    output:
        "reports/experiment/manifest.json",
        "reports/experiment/metrics.json",
    params:
        config=PARAMS.model_dump_json(),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    resources:
        **needs(),
    log:
        "logs/experiment.log",
    benchmark:
        "benchmarks/experiment.tsv"
    shell:
        "python -m reports.experiment --config {params.config:q} --out {params.folder} > {log} 2>&1"
