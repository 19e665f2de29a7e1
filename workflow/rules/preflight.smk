# Say what is missing on a machine for the largest jobs: `snakemake --cores 1 preflight`.

SPECS = [job.spec for job in PLAN.jobs if job.stage != "report"]


rule preflight:
    log:
        f"{PLAN.root}logs/preflight.log",
    threads: lambda wildcards: slots(max(map(resources.cores, SPECS)))
    resources:
        gpu=max(map(resources.gpus_a_node, SPECS)),
        mem_mb=max(map(resources.memory_mb, SPECS)),
        runtime=resources.minutes(None),
        nodes=1,
        tasks_per_gpu=0,
    params:
        config=PARAMS.model_dump_json(),
    shell:
        "python -m rapid preflight --config {params.config:q} 2>&1 | tee {log}"
