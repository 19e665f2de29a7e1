# Demonstrations for SFT: samples.jsonl. Both rules make the same files. An experiment, whose folder
# is {root}, uses one of the two.


rule distill:
    """Sample the teacher on the training problems, and keep its correct completions."""
    input:
        model=get_input_manifests("distill", "model"),
        data=get_input_manifests("distill", "data"),
    output:
        "{root}distilled/{benchmark}/manifest.json",
    log:
        "{root}logs/distill/{benchmark}.log",
    benchmark:
        "{root}benchmarks/distill/{benchmark}.tsv"
    wildcard_constraints:
        root=match_roots(generated_demonstrations=False),
    priority: get_priority("distill")
    threads: get_threads("distill")
    resources:
        **get_resources("distill"),
    params:
        spec=get_spec("distill"),
        model=get_paths("distill", "model"),
        data=get_paths("distill", "data"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid distill --spec {params.spec:q}"
        " --model {params.model} --data {params.data} --out {params.folder} > {log} 2>&1"


rule demonstrate:
    """Generate demonstrations, some with a deliberate mistake, instead of sampling a teacher."""
    input:
        data=get_input_manifests("demonstrate", "data"),
    output:
        "{root}distilled/{benchmark}/manifest.json",
    log:
        "{root}logs/demonstrate/{benchmark}.log",
    benchmark:
        "{root}benchmarks/demonstrate/{benchmark}.tsv"
    wildcard_constraints:
        root=match_roots(generated_demonstrations=True),
    priority: get_priority("demonstrate")
    threads: get_threads("demonstrate")
    resources:
        **get_resources("demonstrate"),
    params:
        spec=get_spec("demonstrate"),
        data=get_paths("demonstrate", "data"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid demonstrate --spec {params.spec:q}"
        " --data {params.data} --out {params.folder} > {log} 2>&1"
