# Evaluation: pass@k on the test problems, of a run's model or of a model before training.


rule evaluate:
    """Evaluate a model on a benchmark's test problems."""
    input:
        model=input_manifests_of("evaluate", "model"),
        data=input_manifests_of("evaluate", "data"),
    output:
        "{root}evaluations/{benchmark}/{model}/{algorithm}/seed{seed}/manifest.json",
        "{root}evaluations/{benchmark}/{model}/{algorithm}/seed{seed}/evaluation.json",
    log:
        "{root}logs/evaluate/{benchmark}.{model}.{algorithm}.seed{seed}.log",
    benchmark:
        "{root}benchmarks/evaluate/{benchmark}.{model}.{algorithm}.seed{seed}.tsv"
    priority: priority_of("evaluate")
    threads: threads_of("evaluate")
    resources:
        **resources_of("evaluate"),
    params:
        spec=spec_of("evaluate"),
        model=path_of("evaluate", "model"),
        data=path_of("evaluate", "data"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid evaluate --spec {params.spec:q}"
        " --model {params.model} --data {params.data} --out {params.folder} > {log} 2>&1"
