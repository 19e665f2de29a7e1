# Problems: data/{benchmark}/train.jsonl, test.jsonl, pretrain.jsonl. The manifest carries their
# digests, and is what other rules depend on.


rule prepare:
    input:
        lambda wildcards: specs.source_files(PARAMS, wildcards.benchmark),
    output:
        "data/{benchmark}/manifest.json",
    params:
        spec=lambda wildcards: prepare_spec(wildcards).model_dump_json(),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    threads: lambda wildcards: slots(1)
    resources:
        **needs(prepare_spec),
    log:
        "logs/prepare/{benchmark}.log",
    benchmark:
        "benchmarks/prepare/{benchmark}.tsv"
    shell:
        "rapid prepare --spec {params.spec:q} --out {params.folder} > {log} 2>&1"
