# The paper's tables, from the runs' small files.


rule tables:
    input:
        [f"{run.folder}/summary.json" for run in specs.runs(PARAMS)],
        [f"{run.folder}/evaluation.json" for run in specs.evaluations(PARAMS)],
    output:
        tex="reports/tables.tex",
        text="reports/tables.txt",
    params:
        config=PARAMS.model_dump_json(),
    log:
        "logs/tables.log",
    benchmark:
        "benchmarks/tables.tsv"
    shell:
        "python -m reports --config {params.config:q} --output {output.tex} --text > {output.text} 2> {log}"
