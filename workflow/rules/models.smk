# Models before training: trained from scratch here, with one tokenizer for all, or published ones.


rule tokenizer:
    """Train the tokenizer of the embedded models."""
    input:
        data=input_manifests_of("tokenizer", "data"),
    output:
        "{root}models/tokenizer/manifest.json",
    log:
        "{root}logs/tokenizer.log",
    benchmark:
        "{root}benchmarks/tokenizer.tsv"
    priority: priority_of("tokenizer")
    threads: threads_of("tokenizer")
    resources:
        **resources_of("tokenizer"),
    params:
        spec=spec_of("tokenizer"),
        data=path_of("tokenizer", "data"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid tokenizer --spec {params.spec:q}"
        " --data {params.data} --out {params.folder} > {log} 2>&1"


rule pretrain:
    """Make an embedded model: an architecture of transformers at a tiny size, pre-trained."""
    input:
        tokenizer=input_manifests_of("pretrain", "tokenizer"),
        data=input_manifests_of("pretrain", "data"),
    output:
        "{root}models/{model}/manifest.json",
    log:
        "{root}logs/pretrain/{model}.log",
    benchmark:
        "{root}benchmarks/pretrain/{model}.tsv"
    wildcard_constraints:
        model=match_models(embedded=True),
    priority: priority_of("pretrain")
    threads: threads_of("pretrain")
    resources:
        **resources_of("pretrain"),
    params:
        spec=spec_of("pretrain"),
        tokenizer=path_of("pretrain", "tokenizer"),
        data=path_of("pretrain", "data"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid pretrain --spec {params.spec:q} --tokenizer {params.tokenizer}"
        " --data {params.data} --out {params.folder} > {log} 2>&1"


rule fetch:
    """Download or convert a published model."""
    input:
        sources=sources_of("fetch"),
    output:
        "{root}models/{model}/manifest.json",
    log:
        "{root}logs/fetch/{model}.log",
    benchmark:
        "{root}benchmarks/fetch/{model}.tsv"
    wildcard_constraints:
        model=match_models(embedded=False),
    priority: priority_of("fetch")
    threads: threads_of("fetch")
    resources:
        **resources_of("fetch"),
    params:
        spec=spec_of("fetch"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid fetch --spec {params.spec:q} --out {params.folder} > {log} 2>&1"
