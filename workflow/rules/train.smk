# Training: a run is one benchmark, model, algorithm and seed. Its trained model is in model/, in
# the same folder as the declared files.

# On several nodes the job starts its processes with srun. Snakemake's SLURM plugin knows such jobs
# as MPI jobs.
NODES = PARAMS.compute.nodes
SPREAD = {"mpi": "srun", "tasks": NODES} if NODES > 1 else {}


rule train:
    """Train one run of one algorithm."""
    input:
        model=input_manifests_of("train", "model"),
        data=input_manifests_of("train", "data"),
    output:
        "{root}runs/{benchmark}/{model}/{algorithm}/seed{seed}/manifest.json",
        "{root}runs/{benchmark}/{model}/{algorithm}/seed{seed}/summary.json",
        "{root}runs/{benchmark}/{model}/{algorithm}/seed{seed}/steps.jsonl",
    log:
        "{root}logs/train/{benchmark}.{model}.{algorithm}.seed{seed}.log",
    benchmark:
        "{root}benchmarks/train/{benchmark}.{model}.{algorithm}.seed{seed}.tsv"
    priority: priority_of("train")
    threads: threads_of("train")
    resources:
        **resources_of("train"),
        **SPREAD,
    params:
        spec=spec_of("train"),
        model=path_of("train", "model"),
        data=path_of("train", "data"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid train --spec {params.spec:q}"
        " --model {params.model} --data {params.data} --out {params.folder} > {log} 2>&1"
