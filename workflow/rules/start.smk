# What happens before the first job: checks of the machine, and the process that jobs fork from.

import subprocess

from rapid import preflight as machine_checks
from rapid.cost.estimates import too_large
from rapid.processes import fork_server
from rapid.processes.lifetimes import WORKFLOW_VARIABLE


def refuse_to_start_in_vain():
    """End before the first job if something is missing: where jobs take hours, anything of theirs.

    Whether machines that SLURM chooses have what a job needs is SLURM's to say, or `preflight`'s.
    """
    is_local = workflow.local_exec
    if os.environ.get("RAPID_PREFLIGHT") == "off":
        return
    if PARAMS.compute.device == "cpu" and is_local:  # minutes
        checks = machine_checks.check_reporter(PARAMS)
    else:
        checks = machine_checks.run_checks(PARAMS, is_local, too_large)
    if machine_checks.print_checks(checks):
        raise WorkflowError("See MISSING above. With RAPID_PREFLIGHT=off jobs start all the same.")


def start_fork_server():
    """Start the process that this workflow's jobs are forked from; it ends with this one.

    There is none for jobs elsewhere: SLURM accounts for what it has started itself. There is none
    for jobs on GPUs: a process that initialised CUDA, as an import may, cannot be forked. There is
    none for vLLM, which starts threads of its own.
    """
    os.environ.pop(fork_server.SOCKET_VARIABLE, None)
    compute = PARAMS.compute
    if not workflow.local_exec or compute.device != "cpu" or compute.sampler != "transformers":
        return
    os.makedirs(f"{PLAN.root}logs", exist_ok=True)
    path = Path(".snakemake", locks.FORK_SERVER_SOCKETS, str(os.getpid()))  # relative: no socket's may be long
    path.parent.mkdir(exist_ok=True)
    with open(f"{PLAN.root}logs/warm.log", "w") as log:
        command = [sys.executable, *"-m rapid warm".split(), str(path), str(os.getpid())]
        environment = {**os.environ, WORKFLOW_VARIABLE: str(os.getpid())}
        subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
    os.environ[fork_server.SOCKET_VARIABLE] = str(path)


def remove_start_limit():
    """Drop Snakemake's default limit of 100 jobs started in a second; another one stays.

    For a limit, Snakemake looks at all that could start once more a second after each look, for
    ever: after n jobs it looks n times a second, and takes that time from the jobs.
    """
    limit = workflow.scheduler.job_rate_limiter
    if limit and (limit.max_jobs, limit.timespan) == (100, 1):
        workflow.scheduler.job_rate_limiter = None
