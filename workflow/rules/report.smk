# The paper's tables, from the runs' small files.


rule tables:
    input:
        [f"{run.folder}/summary.json" for run in specs.runs(PARAMS)],
        [f"{run.folder}/evaluation.json" for run in specs.evaluations(PARAMS)],
    output:
        "reports/tables.tex",
    params:
        config=PARAMS.model_dump_json(),
    log:
        "logs/tables.log",
    benchmark:
        "benchmarks/tables.tsv"
    shell:
        "python -m reports --config {params.config:q} --output {output} > {log} 2>&1"
