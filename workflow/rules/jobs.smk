# A rule for each subcommand of `rapid` that a job runs. rapid/config/jobs.py says what a job reads.
# Its manifest carries the digests of its large files, and is what other rules depend on.
#
#   prepare    problems: train.jsonl, test.jsonl, pretrain.jsonl
#   tokenizer  one for all embedded models
#   pretrain   an embedded model, trained on demonstrations
#   fetch      a published model
#   distill    the teacher's correct completions of the training problems, which sft imitates
#   train      a run: one benchmark, model, algorithm and seed
#   evaluate   pass@k on the test problems, of a run's model or of one before training
#
# A job leases its cores (rapid/resources/leases.py), so that its runtime is its own however many jobs
# are started at once.

RUN = "{benchmark}/{model}/{algorithm}/seed{seed}"
LOG = "{benchmark}.{model}.{algorithm}.seed{seed}"

# Subcommand: where its jobs lie, and the names of their logs.
PLACES = {
    "prepare": ("data/{benchmark}", "prepare/{benchmark}"),
    "tokenizer": ("models/tokenizer", "tokenizer"),
    "pretrain": ("models/{model}", "pretrain/{model}"),
    "fetch": ("models/{model}", "fetch/{model}"),
    "distill": ("distilled/{benchmark}", "distill/{benchmark}"),
    "train": (f"runs/{RUN}", f"train/{LOG}"),
    "evaluate": (f"evaluations/{RUN}", f"evaluate/{LOG}"),
}

# With several nodes the job starts its processes itself, by srun: SLURM's plugin calls that MPI.
NODES = PARAMS.compute.nodes
SPREAD = {"mpi": "srun", "tasks": NODES} if NODES > 1 else {}

for command, (place, log_file) in PLACES.items():

    rule:
        name:
            command
        input:
            of_job(place, inputs),
        output:
            [f"{{root}}{place}/{name}" for name in small_files(command)],
        log:
            f"{{root}}logs/{log_file}.log",
        benchmark:
            f"{{root}}benchmarks/{log_file}.tsv"
        wildcard_constraints:
            model=models_of(command),
        priority: turn(place)
        threads: of_job(place, lambda job: slots(resources.cores(job.spec)))
        resources:
            **needs(place),
            **(SPREAD if command == "train" else {}),
        params:
            spec=of_job(place, lambda job: job.spec.model_dump_json()),
            command=of_job(place, lambda job: job.command),
            folder=lambda wildcards, output: os.path.dirname(output[0]),
        shell:
            "RAPID_WORKFLOW=$PPID exec"
            " python -m rapid {params.command} --spec {params.spec:q} --out {params.folder}"
            " > {log} 2>&1"
