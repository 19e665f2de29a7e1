# Models before SFT and RL: embedded ones, pre-trained here with one tokenizer, or published ones.


rule tokenizer:
    """Train the tokenizer of the embedded models."""
    input:
        data=get_input_manifests("tokenizer", "data"),
    output:
        "{root}models/tokenizer/manifest.json",
    log:
        "{root}logs/tokenizer.log",
    benchmark:
        "{root}benchmarks/tokenizer.tsv"
    priority: get_priority("tokenizer")
    threads: get_threads("tokenizer")
    resources:
        **get_resources("tokenizer"),
    params:
        spec=get_spec("tokenizer"),
        data=get_paths("tokenizer", "data"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid tokenizer --spec {params.spec:q}"
        " --data {params.data} --out {params.folder} > {log} 2>&1"


rule pretrain:
    """Make an embedded model: an architecture of transformers at a tiny size, pre-trained."""
    input:
        tokenizer=get_input_manifests("pretrain", "tokenizer"),
        data=get_input_manifests("pretrain", "data"),
    output:
        "{root}models/{model}/manifest.json",
    log:
        "{root}logs/pretrain/{model}.log",
    benchmark:
        "{root}benchmarks/pretrain/{model}.tsv"
    wildcard_constraints:
        model=match_models(embedded=True),
    priority: get_priority("pretrain")
    threads: get_threads("pretrain")
    resources:
        **get_resources("pretrain"),
    params:
        spec=get_spec("pretrain"),
        tokenizer=get_paths("pretrain", "tokenizer"),
        data=get_paths("pretrain", "data"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid pretrain --spec {params.spec:q} --tokenizer {params.tokenizer}"
        " --data {params.data} --out {params.folder} > {log} 2>&1"


rule fetch:
    """Download or convert a published model."""
    input:
        sources=get_sources("fetch"),
    output:
        "{root}models/{model}/manifest.json",
    log:
        "{root}logs/fetch/{model}.log",
    benchmark:
        "{root}benchmarks/fetch/{model}.tsv"
    wildcard_constraints:
        model=match_models(embedded=False),
    priority: get_priority("fetch")
    threads: get_threads("fetch")
    resources:
        **get_resources("fetch"),
    params:
        spec=get_spec("fetch"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid fetch --spec {params.spec:q} --out {params.folder} > {log} 2>&1"
