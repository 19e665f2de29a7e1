# Tables, figures and report.html, from the small files of runs and evaluations.


rule report:
    """Make tables, figures and report.html of the paper's tables."""
    input:
        input_results_of("report"),
    output:
        page(f"{PLAN.root}reports", "The report", FIGURES),
        in_report("The report", f"{PLAN.root}reports/appendix.txt"),
        f"{PLAN.root}reports/appendix.tex",
    log:
        f"{PLAN.root}logs/report.log",
    benchmark:
        f"{PLAN.root}benchmarks/report.tsv"
    resources:
        **resources_of(),
    params:
        config=PARAMS.model_dump_json(),
        code=code_of("report"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m reports --config {params.config:q} --output {params.folder}/tables.tex"
        " --html {params.folder}/report.html --figures {params.folder}/figures > {log} 2>&1"


if PLAN.default:

    # A rule for the report of the default, if the parameters are an experiment's.
    use rule report as report_of_default with:
        input:
            input_results_of("report", PLAN.default),
        output:
            page("reports", "The report of the default", FIGURES),
            in_report("The report of the default", "reports/appendix.txt"),
            "reports/appendix.tex",
        log:
            "logs/report.log",
        benchmark:
            "benchmarks/report.tsv"
        params:
            config=PLAN.default.params.model_dump_json(),
            code=code_of("report", PLAN.default),
            folder=subpath(output[0], parent=True),


rule experiment:
    """Collect the metrics of RAPID at one H, for `dvc exp show` and `dvc plots`."""
    input:
        input_results_of("experiment"),
    output:
        f"{PLAN.root}reports/experiment/manifest.json",
        f"{PLAN.root}reports/experiment/metrics.json",
    log:
        f"{PLAN.root}logs/experiment.log",
    benchmark:
        f"{PLAN.root}benchmarks/experiment.tsv"
    resources:
        **resources_of(),
    params:
        config=PARAMS.model_dump_json(),
        code=code_of("experiment"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m reports.experiment --config {params.config:q} --out {params.folder}"
        " > {log} 2>&1"


rule studies:
    """Make the studies' tables and figures: what each part of RAPID contributes."""
    input:
        input_results_of("studies"),
    output:
        page(f"{PLAN.root}reports/studies", "The studies", list_study_figures(PARAMS)),
    log:
        f"{PLAN.root}logs/studies.log",
    benchmark:
        f"{PLAN.root}benchmarks/studies.tsv"
    resources:
        **resources_of(),
    params:
        config=PARAMS.model_dump_json(),
        code=code_of("studies"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m reports --studies --config {params.config:q}"
        " --output {params.folder}/tables.tex --html {params.folder}/report.html"
        " --figures {params.folder}/figures > {log} 2>&1"


rule arena:
    """Make the arena's tables and figures: all algorithms, at learning rates of their own."""
    input:
        input_results_of("arena", extra_files=[ARENA.record] if ARENA and ARENA.only else []),
    output:
        page(f"{PLAN.root}reports/arena", "The arena", list_arena_figures(PARAMS)),
        # Results by seed; not when learning rates are tuned.
        [f"{PLAN.root}reports/arena/results.csv"] if ARENA and not ARENA.tuning else [],
    log:
        f"{PLAN.root}logs/arena.log",
    benchmark:
        f"{PLAN.root}benchmarks/arena.tsv"
    resources:
        **resources_of(),
    params:
        config=PARAMS.model_dump_json(),
        code=code_of("arena"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m reports --arena --config {params.config:q}"
        " --output {params.folder}/tables.tex --html {params.folder}/report.html"
        " --figures {params.folder}/figures > {log} 2>&1"
