# pass@k on the test problems, of each trained model and of each model before training.


rule evaluate:
    input:
        "data/{benchmark}/manifest.json",
        "runs/{benchmark}/{model}/{algorithm}/seed{seed}/manifest.json",
    output:
        "evaluations/{benchmark}/{model}/{algorithm}/seed{seed}/manifest.json",
        "evaluations/{benchmark}/{model}/{algorithm}/seed{seed}/evaluation.json",
    params:
        spec=lambda wildcards: evaluate_spec(wildcards).model_dump_json(),
        model=lambda wildcards, input: f"{os.path.dirname(input[1])}/model",
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    wildcard_constraints:
        algorithm=names.pattern(),
    threads: lambda wildcards: slots(resources.cores(evaluate_spec(wildcards)))
    resources:
        **needs(evaluate_spec),
    log:
        "logs/evaluate/{benchmark}.{model}.{algorithm}.seed{seed}.log",
    benchmark:
        "benchmarks/evaluate/{benchmark}.{model}.{algorithm}.seed{seed}.tsv"
    shell:
        "rapid evaluate --spec {params.spec:q} --model {params.model}"
        " --data data/{wildcards.benchmark}/test.jsonl --out {params.folder} > {log} 2>&1"


use rule evaluate as evaluate_base with:
    input:
        "data/{benchmark}/manifest.json",
        "models/{model}/manifest.json",
    output:
        "evaluations/{benchmark}/{model}/base/seed{seed}/manifest.json",
        "evaluations/{benchmark}/{model}/base/seed{seed}/evaluation.json",
    params:
        spec=lambda wildcards: evaluate_spec(wildcards).model_dump_json(),
        model=lambda wildcards: f"models/{wildcards.model}",
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    log:
        "logs/evaluate/{benchmark}.{model}.base.seed{seed}.log",
    benchmark:
        "benchmarks/evaluate/{benchmark}.{model}.base.seed{seed}.tsv"
