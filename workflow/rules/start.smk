# Steps before the first job: check the machine, and start the fork server, from which jobs fork
# (rapid/processes/fork_server.py). common.smk defines PARAMS, the parameters, and PLAN, all jobs.

import subprocess

from rapid import preflight as machine_checks
from rapid.processes import fork_server
from rapid.processes.lifetimes import WORKFLOW_VARIABLE


def check_requirements():
    """End the workflow before the first job if something that its jobs need is missing.

    All requirements are checked (rapid/preflight.py). But if jobs run on this machine's CPU, where
    jobs take minutes, only the package for `logging.report_to` and the C++ compiler that DeepSpeed
    and vLLM need are checked. Machines that SLURM chooses are not checked here; the rule
    `preflight` can check them.
    """
    is_local = workflow.local_exec
    if os.environ.get("RAPID_PREFLIGHT") == "off":
        return
    if PARAMS.compute.device == "cpu" and is_local:
        checks = machine_checks.check_late_requirements(PARAMS)
    else:
        checks = machine_checks.run_checks(PARAMS, is_local)
    if machine_checks.print_checks(checks):  # returns the checks that found something missing
        raise WorkflowError("Requirements are MISSING, see above. RAPID_PREFLIGHT=off skips this check.")


def start_fork_server():
    """Start the fork server of this workflow's jobs; it ends with this process.

    It is not used
    - with SLURM, which accounts only for processes that SLURM itself has started,
    - for GPUs, because a process that has initialised CUDA (an import may do so) cannot be forked,
    - for vLLM, which starts threads, and threads do not survive a fork.
    """
    for variable in (fork_server.SOCKET_VARIABLE, fork_server.PID_VARIABLE):
        os.environ.pop(variable, None)
    compute = PARAMS.compute
    if not workflow.local_exec or compute.device != "cpu" or compute.sampler != "transformers":
        return
    os.makedirs(f"{PLAN.root}logs", exist_ok=True)
    # The path is relative, because Linux limits the paths of sockets to about 100 characters.
    path = Path(".snakemake", locks.FORK_SERVER_SOCKETS, str(os.getpid()))
    path.parent.mkdir(exist_ok=True)
    with open(f"{PLAN.root}logs/fork_server.log", "w") as log:
        command = [sys.executable, *"-m rapid fork-server".split(), str(path), str(os.getpid())]
        environment = {**os.environ, WORKFLOW_VARIABLE: str(os.getpid())}
        process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
        )
    os.environ[fork_server.SOCKET_VARIABLE] = str(path)
    os.environ[fork_server.PID_VARIABLE] = str(process.pid)


def remove_start_limit():
    """Remove Snakemake's default limit of 100 started jobs per second; keep a user's limit.

    With a limit, each check for ready jobs schedules another check one second later, without end.
    Since each job causes a check too, Snakemake checks n times a second after n jobs, which takes
    CPU time from the jobs.
    """
    limit = workflow.scheduler.job_rate_limiter
    if limit and (limit.max_jobs, limit.timespan) == (100, 1):
        workflow.scheduler.job_rate_limiter = None
