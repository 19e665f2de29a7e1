# Steps before the first job: checks of the machine, and the fork server of jobs.

import subprocess

from rapid import preflight as machine_checks
from rapid.cost.estimates import too_large
from rapid.processes import fork_server
from rapid.processes.lifetimes import WORKFLOW_VARIABLE


def refuse_to_start_in_vain():
    """End before the first job if something is missing; for long jobs all requirements are checked.

    Machines that SLURM chooses are not checked here; the rule `preflight` can check them.
    """
    is_local = workflow.local_exec
    if os.environ.get("RAPID_PREFLIGHT") == "off":
        return
    if PARAMS.compute.device == "cpu" and is_local:  # minutes
        checks = machine_checks.check_reporter(PARAMS)
    else:
        checks = machine_checks.run_checks(PARAMS, is_local, too_large)
    if machine_checks.print_checks(checks):
        raise WorkflowError("Requirements are MISSING, see above. RAPID_PREFLIGHT=off skips this check.")


def start_fork_server():
    """Start the fork server of this workflow's jobs; it ends with this process.

    It is not used for SLURM, which accounts only for processes that it has started; for GPUs,
    because a process that initialised CUDA (an import may do so) cannot be forked; nor for vLLM,
    which starts threads.
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
    """Remove Snakemake's default limit of 100 started jobs per second; other limits stay.

    With a limit, Snakemake repeats each look at the ready jobs one second later, for ever. After n
    jobs it looks n times a second, which takes time from the jobs.
    """
    limit = workflow.scheduler.job_rate_limiter
    if limit and (limit.max_jobs, limit.timespan) == (100, 1):
        workflow.scheduler.job_rate_limiter = None
