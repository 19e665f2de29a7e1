# Evaluations: pass@k on the test problems, of a run's model or of a model before training.


rule evaluate:
    """Evaluate a model on a benchmark's test problems."""
    input:
        model=get_input_manifests("evaluate", "model"),
        data=get_input_manifests("evaluate", "data"),
    output:
        "{root}evaluations/{benchmark}/{model}/{algorithm}/seed{seed}/manifest.json",
        "{root}evaluations/{benchmark}/{model}/{algorithm}/seed{seed}/evaluation.json",
    log:
        "{root}logs/evaluate/{benchmark}.{model}.{algorithm}.seed{seed}.log",
    benchmark:
        "{root}benchmarks/evaluate/{benchmark}.{model}.{algorithm}.seed{seed}.tsv"
    priority: get_priority("evaluate")
    threads: get_threads("evaluate")
    resources:
        **get_resources("evaluate"),
    params:
        spec=get_spec("evaluate"),
        model=get_paths("evaluate", "model"),
        data=get_paths("evaluate", "data"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid evaluate --spec {params.spec:q}"
        " --model {params.model} --data {params.data} --out {params.folder} > {log} 2>&1"
