# Problems of each benchmark: train.jsonl, test.jsonl, pretrain.jsonl.


rule prepare:
    """Make or load a benchmark's problems."""
    input:
        sources=sources_of("prepare"),
    output:
        "{root}data/{benchmark}/manifest.json",
    log:
        "{root}logs/prepare/{benchmark}.log",
    benchmark:
        "{root}benchmarks/prepare/{benchmark}.tsv"
    priority: priority_of("prepare")
    threads: threads_of("prepare")
    resources:
        **resources_of("prepare"),
    params:
        spec=spec_of("prepare"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid prepare --spec {params.spec:q} --out {params.folder} > {log} 2>&1"
