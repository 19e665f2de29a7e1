# `snakemake --cores 1 preflight` checks whether this machine has what the largest jobs need. With
# SLURM it checks the machine that SLURM chooses.

SPECS = [job.spec for job in PLAN.jobs if job.stage != "report"]  # a report needs less


rule preflight:
    """Check whether this machine has what the jobs need."""
    log:
        f"{PLAN.root}logs/preflight.log",
    threads: lambda wildcards: count_slots(max(map(requests.count_cores, SPECS)))
    resources:
        gpu=max(map(requests.count_gpus_per_node, SPECS)),
        mem_mb=max(map(requests.get_memory_limit_mb, SPECS)),
        runtime=requests.get_time_limit_minutes(None),  # None: that of a small job
        nodes=1,
        tasks_per_gpu=0,  # as in `get_resources` (common.smk)
    params:
        config=PARAMS.model_dump_json(),
    shell:
        "python -m rapid preflight --config {params.config:q} 2>&1 | tee {log}"
