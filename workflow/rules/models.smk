# The embedded models: one tokenizer for all, then each model trained on demonstrations. Published
# ones are fetched.


MADE = [name for name in PARAMS.models if specs.is_made(PARAMS, name)]
PUBLISHED = [name for name in PARAMS.models if name not in MADE]


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
        spec=lambda wildcards: model_spec(wildcards).model_dump_json(),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
        tokenizer=lambda wildcards, input: os.path.dirname(input.tokenizer),
    threads: lambda wildcards: slots(PARAMS.compute.threads)
    resources:
        **needs(model_spec),
    priority: 10  # everything else waits for models
    log:
        "logs/pretrain/{model}.log",
    benchmark:
        "benchmarks/pretrain/{model}.tsv"
    shell:
        "rapid pretrain --spec {params.spec:q} --data data --tokenizer {params.tokenizer}"
        " --out {params.folder} > {log} 2>&1"


rule fetch:
    input:
        lambda wildcards: models.source_files(PARAMS.models[wildcards.model]),
    output:
        "models/{model}/manifest.json",
    wildcard_constraints:
        model="|".join(map(re.escape, PUBLISHED)) or "(?!)",
    params:
        spec=lambda wildcards: model_spec(wildcards).model_dump_json(),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    threads: lambda wildcards: slots(1)
    resources:
        **needs(model_spec),
    priority: 10
    log:
        "logs/fetch/{model}.log",
    benchmark:
        "benchmarks/fetch/{model}.tsv"
    shell:
        "rapid fetch --spec {params.spec:q} --out {params.folder} > {log} 2>&1"
