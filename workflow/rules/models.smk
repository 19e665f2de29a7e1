# The embedded models: one tokenizer for all, then each model trained on demonstrations.


MADE = specs.made(PARAMS)


def tokenizer_spec(wildcards):
    return specs.tokenizer_spec(PARAMS)


def pretrain_spec(wildcards):
    return specs.pretrain_spec(PARAMS, wildcards.model)


rule tokenizer:
    input:
        expand("data/{benchmark}/manifest.json", benchmark=PARAMS.benchmarks),
    output:
        "models/tokenizer/manifest.json",
    params:
        spec=lambda wildcards: tokenizer_spec(wildcards).model_dump_json(),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    threads: lambda wildcards: slots(1)
    resources:
        **needs(tokenizer_spec),
    log:
        "logs/tokenizer.log",
    benchmark:
        "benchmarks/tokenizer.tsv"
    shell:
        "rapid tokenizer --spec {params.spec:q} --data data --out {params.folder} > {log} 2>&1"


rule pretrain:
    input:
        lambda wildcards: expand(
            "data/{benchmark}/manifest.json", benchmark=PARAMS.models[wildcards.model].benchmarks
        ),
        tokenizer="models/tokenizer/manifest.json",
    output:
        "models/{model}/manifest.json",
    wildcard_constraints:
        model="|".join(map(re.escape, MADE)) or "(?!)",
    params:
        spec=lambda wildcards: pretrain_spec(wildcards).model_dump_json(),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
        tokenizer=lambda wildcards, input: os.path.dirname(input.tokenizer),
    threads: lambda wildcards: slots(PARAMS.compute.threads)
    resources:
        **needs(pretrain_spec),
    priority: 10  # everything else waits for models
    log:
        "logs/pretrain/{model}.log",
    benchmark:
        "benchmarks/pretrain/{model}.tsv"
    shell:
        "rapid pretrain --spec {params.spec:q} --data data --tokenizer {params.tokenizer}"
        " --out {params.folder} > {log} 2>&1"
