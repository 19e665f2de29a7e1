# Training: a run is one benchmark, model, algorithm and seed. Its model is in model/, in the folder
# of the declared outputs. The head of the Snakefile says why large files are not declared, and what
# RAPID_WORKFLOW is for.

# On several nodes a job starts its processes with srun, which Snakemake's SLURM plugin calls an MPI
# job. The plugin requests the GPUs of all nodes together, which SLURM may divide unevenly.
NODES = PARAMS.compute.nodes
MPI_RESOURCES = {"mpi": "srun", "tasks": NODES} if NODES > 1 else {}
if NODES > 1 and PARAMS.compute.device == "gpu":
    MPI_RESOURCES["slurm_extra"] = look_up_job(
        "train", lambda job: f"--gpus-per-node={requests.count_gpus_per_node(job.spec)}"
    )


rule train:
    """Train one run of one algorithm."""
    input:
        model=get_input_manifests("train", "model"),
        data=get_input_manifests("train", "data"),
    output:
        "{root}runs/{benchmark}/{model}/{algorithm}/seed{seed}/manifest.json",
        "{root}runs/{benchmark}/{model}/{algorithm}/seed{seed}/summary.json",
        "{root}runs/{benchmark}/{model}/{algorithm}/seed{seed}/steps.jsonl",
    log:
        "{root}logs/train/{benchmark}.{model}.{algorithm}.seed{seed}.log",
    benchmark:
        "{root}benchmarks/train/{benchmark}.{model}.{algorithm}.seed{seed}.tsv"
    priority: get_priority("train")
    threads: get_threads("train")
    resources:
        **get_resources("train"),
        **MPI_RESOURCES,
    params:
        spec=get_spec("train"),
        model=get_paths("train", "model"),
        data=get_paths("train", "data"),
        folder=subpath(output[0], parent=True),
    shell:
        "RAPID_WORKFLOW=$PPID exec"
        " python -m rapid train --spec {params.spec:q}"
        " --model {params.model} --data {params.data} --out {params.folder} > {log} 2>&1"
