# The problems of each benchmark: train.jsonl, test.jsonl, pretrain.jsonl. The head of the Snakefile
# says why only the manifest is declared as output, and what RAPID_WORKFLOW is for. The functions are
# in common.smk.


rule prepare:
    """Make or load a benchmark's problems."""
    input:
        sources=get_sources("prepare"),
    output:
        "{root}data/{benchmark}/manifest.json",
    log:
        "{root}logs/prepare/{benchmark}.log",
    benchmark:
        "{root}benchmarks/prepare/{benchmark}.tsv"
    priority: get_priority("prepare")
    threads: get_threads("prepare")
    resources:
        **get_resources("prepare"),
    params:
        spec=get_spec("prepare"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid prepare --spec {params.spec:q} --out {params.folder} > {log} 2>&1"
