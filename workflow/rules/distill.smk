# The teacher's correct completions of the training problems, which sft imitates.


rule distill:
    input:
        "data/{benchmark}/manifest.json",
        teacher=f"models/{PARAMS.teacher}/manifest.json",
    output:
        "distilled/{benchmark}/manifest.json",
    params:
        spec=lambda wildcards: distill_spec(wildcards).model_dump_json(),
        teacher=lambda wildcards, input: os.path.dirname(input.teacher),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    threads: lambda wildcards: slots(resources.cores(distill_spec(wildcards)))
    resources:
        **needs(distill_spec),
    log:
        "logs/distill/{benchmark}.log",
    benchmark:
        "benchmarks/distill/{benchmark}.tsv"
    shell:
        "rapid distill --spec {params.spec:q} --model {params.teacher}"
        " --data data/{wildcards.benchmark}/train.jsonl --out {params.folder} > {log} 2>&1"
