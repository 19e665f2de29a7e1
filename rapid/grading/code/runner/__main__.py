"""The runner: forks one child per job. It never sees the content of a job or its outputs.

    python -S -s -P -B runner SETTINGS

File descriptor 3 is a socket to the grader. The grader sends an `encoding.REQUEST` and, with it,
the file descriptor of a second socket, on which it sends the job to the child and reads the
outputs. The runner does not read the second socket. So the runner's memory, which the next child
inherits, holds nothing of earlier jobs, such as a reference solution. After the child has ended,
the runner answers with an `encoding.REPLY`.

A job is its length and a JSON object, made by `sandbox.encode_job`. The child finds the program in
a completion (`program.find_program`) and runs it. It sends one line per call, {"output": ...}. If
something goes wrong it sends {"reason": ...}, a reason of a verdict, as its last line.

SETTINGS is a JSON object. A completion can read the files in `paths`, except for the folders in
`hidden`. In these folders it can read only `importable`, the packages that completions may import.
`resources` has limits for the process of a completion, by the names of RLIMITs. `layer` is one of
those that `sandbox` describes. In the layer "namespaces" the runner puts itself into namespaces; in
the layer "bwrap" it is in them already, and in the other layers there are none.
"""

import contextlib
import gc
import json
import os
import random
import select
import signal
import socket
import sys
import time
import types
from dataclasses import dataclass

import encoding
import filters
import isolation
import packages
import program

# File descriptor of the socket to the grader. Children close it. Descriptors 0 and 1 are /dev/null,
# and in children 2 too.
CONTROL = 3

# Modules that solutions often use: imported once in the runner instead of in every child.
PRELOADED = (
    "array bisect calendar cmath collections copy dataclasses datetime decimal enum fractions "
    "functools heapq itertools math numbers operator re statistics string textwrap typing"
)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, `os.waitpid` raises an error
    settings = json.loads(sys.argv[1])
    paths, hidden, importable = settings["paths"], settings["hidden"], settings["importable"]
    control = socket.socket(fileno=CONTROL)
    sys.meta_path.append(packages.Finder(importable))
    for name in PRELOADED.split():
        __import__(name)
    if settings["layer"] == "namespaces":
        isolation.enter_namespaces(paths, hidden, importable)
    forker, user = isolation.NamespaceForker(), isolation.find_unused_user()
    if not isolation.can_read(os.path.dirname(os.__file__), user):
        preload_library()
    all_filters = filters.FileFilter([*paths, *importable], hidden), filters.SystemCallFilter()
    working_filters = [kernel_filter for kernel_filter in all_filters if kernel_filter.works]
    # A process that is not dumpable cannot be traced by a completion that runs as the same user.
    isolation.call_libc("prctl", isolation.PR_SET_DUMPABLE, 0)
    gc.collect()
    gc.freeze()  # garbage collection in a child would otherwise copy all shared pages
    hello = {"own_namespaces": forker.works, "user": os.geteuid() if user is None else user}
    hello |= {type(kernel_filter).__name__: kernel_filter.works for kernel_filter in all_filters}
    control.sendall(json.dumps(hello).encode() + b"\n")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, encoding.REQUEST.size, 1)
        if not message:  # the grader is gone
            return
        job = socket.socket(fileno=descriptors[0])
        timeout, memory, guarded, filtered = encoding.REQUEST.unpack(message)
        confinement = Confinement(
            timeout,
            # CPU seconds: above the wall-clock limit, in case that limit is not enforced.
            settings["resources"] | {"AS": memory, "CPU": int(timeout) + 2},
            user,
            working_filters if filtered else [],
            guarded,
            importable,
        )
        control.sendall(encoding.REPLY.pack(*supervise_child(job, forker, confinement)))


def preload_library() -> None:
    """Import the whole standard library, for children whose user cannot read its files.

    This happens if Python is in a folder of root, such as /root, and children run as another user.
    """
    for name in sys.stdlib_module_names - {"antigravity"}:  # antigravity opens a browser
        if not name.startswith("_"):
            with contextlib.suppress(Exception):  # a module for Windows, or not built here
                __import__(name)


@dataclass(frozen=True)
class Confinement:
    """The isolation and the limits of one job."""

    timeout: float  # wall-clock seconds
    resources: dict[str, int]  # limits, by the names of RLIMITs
    user: int | None  # id of the user to run as; None for the runner's user
    filters: list[filters.FileFilter | filters.SystemCallFilter]
    guarded: bool  # whether the guard in Python (`isolation.install_guard`) is on
    importable: list[str]  # paths of packages, which the guard allows to be read


def supervise_child(
    job: socket.socket, forker: isolation.NamespaceForker, confinement: Confinement
) -> tuple[bool, int]:
    """Run one job in a child. Return whether its time ran out, and its wait status."""
    # Only the child keeps the writing end `lifeline` open, so the reading end `alive` reaches the
    # end of file when the child ends.
    alive, lifeline = os.pipe()
    deadline = time.monotonic() + confinement.timeout
    child = forker.fork()
    if child == 0:
        run_child(job, lifeline, confinement)
    os.close(lifeline)
    events = select.poll()
    events.register(alive, select.POLLIN)
    events.register(job, 0)  # POLLHUP only: the grader has closed the socket, or has ended
    timed_out = not events.poll(max(0.0, deadline - time.monotonic()) * 1000)
    try:
        os.killpg(child, signal.SIGKILL)  # no effect on the status of a child that has ended
    except (ProcessLookupError, PermissionError):
        os.kill(child, signal.SIGKILL)  # the child leads no process group yet, or no longer
    _, status = os.waitpid(child, 0)
    os.close(alive)
    job.close()
    return timed_out, status


def run_child(job: socket.socket, lifeline: int, confinement: Confinement) -> None:
    """Isolate this process, which is the child, run the job, and end the process.

    If the isolation fails, the job is not run.
    """
    try:
        os.setsid()
        os.dup2(1, 2)  # standard error becomes /dev/null, as descriptors 0 and 1 are
        isolation.drop_rights(confinement.user)
        isolation.limit_resources(confinement.resources)
        for kernel_filter in confinement.filters:
            kernel_filter.restrict()
        # Close all file descriptors from CONTROL on, except the job's socket and the lifeline. The
        # runner has none above 255.
        first, second = sorted((job.fileno(), lifeline))
        os.closerange(CONTROL, first)
        os.closerange(first + 1, second)
        os.closerange(second + 1, 256)
        random.seed(0)  # so that the same completion gets the same verdict
        reason = run_job(job, confinement)
        if reason:
            send_line(job, {"reason": reason})
    finally:
        os._exit(0)


def run_job(job: socket.socket, confinement: Confinement) -> str | None:
    """Run a job's code and calls, and send the outputs. Return the reason of a failure, or None."""
    with job.makefile("rb") as stream:
        [length] = encoding.LENGTH.unpack(stream.read(encoding.LENGTH.size))
        work = json.loads(stream.read(length))
    try:
        if work["is_completion"]:
            steps = program.find_program(work["code"], work["entry_point"])
        else:
            code = compile(work["code"], "<completion>", "exec", dont_inherit=True)
            steps = [program.ProgramStep(code, must_succeed=True)]
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return "unparsable"
    packages.preload_packages({name for step in steps for name in program.find_names(step.code)})
    if confinement.guarded:
        isolation.install_guard(confinement.importable)
    try:
        module = types.ModuleType("completion")
        sys.modules["completion"] = module
        execute_steps(steps, module.__dict__)
        function = module.__dict__.get(work["entry_point"])
        if function is None:
            return "no_answer"
        for call in work["calls"]:
            output = function(*encoding.decode(call))
            output = set(output) if work["as_sets"] else output
            send_line(job, {"output": encoding.encode_output(output)})
    except isolation.Forbidden:
        return "forbidden"
    except MemoryError:
        return "memory"
    except BaseException:  # SystemExit and KeyboardInterrupt too
        return "crashed"
    return None


def execute_steps(steps: list[program.ProgramStep], namespace: dict) -> None:
    """Run the steps of a program in `namespace`.

    A step that need not succeed is skipped if it raises. Forbidden actions and too much memory are
    errors in every step.
    """
    for step in steps:
        try:
            exec(step.code, namespace)
        except (isolation.Forbidden, MemoryError):
            raise
        except BaseException:
            if step.must_succeed:
                raise


def send_line(job: socket.socket, answer: dict) -> None:
    """Send one answer as a line of JSON."""
    line = memoryview(json.dumps(answer).encode() + b"\n")
    while line:
        line = line[os.write(job.fileno(), line) :]


main()
