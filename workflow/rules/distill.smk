# Correct completions of the training problems, which sft imitates: samples.jsonl.


rule distill:
    """Sample the teacher on the training problems, and keep its correct completions."""
    input:
        model=input_manifests_of("distill", "model"),
        data=input_manifests_of("distill", "data"),
    output:
        "{root}distilled/{benchmark}/manifest.json",
    log:
        "{root}logs/distill/{benchmark}.log",
    benchmark:
        "{root}benchmarks/distill/{benchmark}.tsv"
    wildcard_constraints:
        root=match_roots(generated_demonstrations=False),
    priority: priority_of("distill")
    threads: threads_of("distill")
    resources:
        **resources_of("distill"),
    params:
        spec=spec_of("distill"),
        model=path_of("distill", "model"),
        data=path_of("distill", "data"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid distill --spec {params.spec:q}"
        " --model {params.model} --data {params.data} --out {params.folder} > {log} 2>&1"


rule demonstrate:
    """Make demonstrations, some with a deliberate mistake, in place of a teacher's."""
    input:
        data=input_manifests_of("demonstrate", "data"),
    output:
        "{root}distilled/{benchmark}/manifest.json",
    log:
        "{root}logs/demonstrate/{benchmark}.log",
    benchmark:
        "{root}benchmarks/demonstrate/{benchmark}.tsv"
    wildcard_constraints:
        root=match_roots(generated_demonstrations=True),
    priority: priority_of("demonstrate")
    threads: threads_of("demonstrate")
    resources:
        **resources_of("demonstrate"),
    params:
        spec=spec_of("demonstrate"),
        data=path_of("demonstrate", "data"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid demonstrate --spec {params.spec:q}"
        " --data {params.data} --out {params.folder} > {log} 2>&1"
