# One job for each benchmark, model, algorithm and seed. A job leases its cores (rapid/lease.py), so
# that its runtime is its own however many jobs are started at once. The model is large and stays
# undeclared; the manifest carries its digest.


# With several nodes the job starts its processes itself, by srun: SLURM's plugin calls that MPI.
NODES = PARAMS.compute.nodes
SPREAD = {"mpi": "srun", "tasks": NODES} if NODES > 1 else {}


rule train:
    input:
        lambda wildcards: "distilled/{benchmark}/manifest.json"
        if names.imitates(wildcards.algorithm)
        else "data/{benchmark}/manifest.json",
        "models/{model}/manifest.json",
    output:
        "runs/{benchmark}/{model}/{algorithm}/seed{seed}/manifest.json",
        "runs/{benchmark}/{model}/{algorithm}/seed{seed}/summary.json",
        "runs/{benchmark}/{model}/{algorithm}/seed{seed}/steps.jsonl",
    params:
        spec=lambda wildcards: train_spec(wildcards).model_dump_json(),
        data=lambda wildcards: f"distilled/{wildcards.benchmark}/samples.jsonl"
        if names.imitates(wildcards.algorithm)
        else f"data/{wildcards.benchmark}/train.jsonl",
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    wildcard_constraints:
        algorithm=names.pattern(),
    threads: lambda wildcards: slots(resources.cores(train_spec(wildcards)))
    resources:
        **needs(train_spec),
        **SPREAD,
    log:
        "logs/train/{benchmark}.{model}.{algorithm}.seed{seed}.log",
    benchmark:
        "benchmarks/train/{benchmark}.{model}.{algorithm}.seed{seed}.tsv"
    shell:
        "rapid train --spec {params.spec:q} --model models/{wildcards.model} --data {params.data}"
        " --out {params.folder} > {log} 2>&1"
