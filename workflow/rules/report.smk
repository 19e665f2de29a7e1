# The paper's tables, from the runs' small files.

REPORTED = [f"{run.folder}/summary.json" for run in specs.runs(PARAMS)] + [
    f"{run.folder}/evaluation.json" for run in specs.evaluations(PARAMS)
]

# Snakemake does not miss a file that was deleted while what it went into is there. This note is an
# input that changes when one is.
MISSING = "logs/missing.txt"
missing = [path for path in REPORTED if not os.path.exists(path)]
if not os.path.exists(MISSING) or (missing and os.path.exists("reports/tables.tex")):
    os.makedirs("logs", exist_ok=True)
    with open(MISSING, "w") as note:
        note.write("\n".join([f"missing at {time.time()}:", *missing]))


rule tables:
    input:
        REPORTED,
        note=MISSING,
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
        "python -m reports --config {params.config:q} --output {output.tex} --text"
        " > {output.text} 2> {log}"
