# Tables, figures and report.html, from the small files of runs and evaluations.
# report_functions.smk has the functions; a text such as "The report" is a heading in the page of
# `snakemake --report`.


rule report:
    """Make the paper's tables and figures, and report.html."""
    input:
        get_input_results("report"),
    output:
        list_report_files(f"{PLAN.root}reports", "The report", FIGURES),
        mark_for_report("The report", f"{PLAN.root}reports/appendix.txt"),
        f"{PLAN.root}reports/appendix.tex",
    log:
        f"{PLAN.root}logs/report.log",
    benchmark:
        f"{PLAN.root}benchmarks/report.tsv"
    resources:
        **get_resources(),
    params:
        config=PARAMS.model_dump_json(),
        code=get_code_digest("report"),
        kind="",
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m reports {params.kind} --config {params.config:q} --output {params.folder}/tables.tex"
        " --html {params.folder}/report.html --figures {params.folder}/figures > {log} 2>&1"


if PLAN.default:

    # In an experiment with a name, this rule makes the default's report.
    use rule report as report_of_default with:
        input:
            get_input_results("report", PLAN.default),
        output:
            list_report_files("reports", "The report of the default", FIGURES),
            mark_for_report("The report of the default", "reports/appendix.txt"),
            "reports/appendix.tex",
        log:
            "logs/report.log",
        benchmark:
            "benchmarks/report.tsv"
        params:
            config=PLAN.default.params.model_dump_json(),
            code=get_code_digest("report", PLAN.default),
            folder=subpath(output[0], parent=True),


rule experiment:
    """Collect the metrics of RAPID at one H, for `dvc exp show` and `dvc plots`."""
    input:
        get_input_results("experiment"),
    output:
        f"{PLAN.root}reports/experiment/manifest.json",
        f"{PLAN.root}reports/experiment/metrics.json",
    log:
        f"{PLAN.root}logs/experiment.log",
    benchmark:
        f"{PLAN.root}benchmarks/experiment.tsv"
    resources:
        **get_resources(),
    params:
        config=PARAMS.model_dump_json(),
        code=get_code_digest("experiment"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m reports.experiment --config {params.config:q} --out {params.folder}"
        " > {log} 2>&1"


use rule report as studies with:
    """Make the tables and figures of the studies (ablations)."""
    input:
        get_input_results("studies"),
    output:
        list_report_files(f"{PLAN.root}reports/studies", "The studies", list_study_figures(PARAMS)),
    log:
        f"{PLAN.root}logs/studies.log",
    benchmark:
        f"{PLAN.root}benchmarks/studies.tsv"
    params:
        code=get_code_digest("studies"),
        kind="--studies",


use rule report as arena with:
    """Make the tables and figures of the arena, which compares all algorithms."""
    input:
        # With `arena.only`, results of the other algorithms are read from the file `arena.record`.
        get_input_results("arena", extra_files=[ARENA.record] if ARENA and ARENA.only else []),
    output:
        list_report_files(f"{PLAN.root}reports/arena", "The arena", list_arena_figures(PARAMS)),
        # The results by seed, which a tuning does not write.
        [f"{PLAN.root}reports/arena/results.csv"] if ARENA and not ARENA.tuning else [],
    log:
        f"{PLAN.root}logs/arena.log",
    benchmark:
        f"{PLAN.root}benchmarks/arena.tsv"
    params:
        code=get_code_digest("arena"),
        kind="--arena",
