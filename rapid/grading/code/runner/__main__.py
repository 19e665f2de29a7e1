"""The runner: forks one child per completion and never sees what goes in or out.

    python -S -s -P -B runner SETTINGS

File descriptor 3 is a socket to the grader. A request is one `encoding.REQUEST` with the file
descriptor of another socket, over which the grader sends the job straight to the child and gets its
outputs straight back. So nothing of an earlier job, the reference solution least of all, is in the
memory that a later child inherits. When the child is gone, an `encoding.REPLY` follows.

A job is its length and a JSON object, which `sandbox.encode_job` makes. The child finds the program
in a completion (`program.find_program`), runs it, and answers a line per call, {"output": ...}, or
one {"reason": ...} and no more.

SETTINGS are JSON. `paths` stay readable, but for what is below `hidden`; of that, `shared` does:
packages that completions may import. `resources` are limits of a completion's process, by the names
of RLIMITs. `layer` "namespaces" puts up walls around the runner. In the other layers they stand
already, or there are none.
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

CONTROL = 3  # file descriptor; children close it, and all below are /dev/null to them

# Imported once here instead of in every child: what solutions use.
PRELOADED = (
    "array bisect calendar cmath collections copy dataclasses datetime decimal enum fractions "
    "functools heapq itertools math numbers operator re statistics string textwrap typing"
)


def main() -> None:
    settings = json.loads(sys.argv[1])
    paths, hidden, shared = settings["paths"], settings["hidden"], settings["shared"]
    control = socket.socket(fileno=CONTROL)
    sys.meta_path.append(packages.Finder(shared))
    for name in PRELOADED.split():
        __import__(name)
    if settings["layer"] == "namespaces":
        isolation.enclose_process(paths, hidden, shared)
    divider, user = isolation.Divider(), isolation.spare_user()
    if not isolation.can_read(os.path.dirname(os.__file__), user):
        preload_all()
    all_filters = filters.Files([*paths, *shared], hidden), filters.SystemCalls()
    working_filters = [kernel_filter for kernel_filter in all_filters if kernel_filter.works]
    # A completion that runs as the same user is not to trace the runner.
    isolation.call_libc("prctl", isolation.PR_SET_DUMPABLE, 0)
    gc.collect()
    gc.freeze()  # a collection in a child then leaves these pages shared
    hello = {"divided": divider.works, "user": os.geteuid() if user is None else user}
    hello |= {type(kernel_filter).__name__: kernel_filter.works for kernel_filter in all_filters}
    control.sendall(json.dumps(hello).encode() + b"\n")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, encoding.REQUEST.size, 1)
        if not message:  # the grader is gone
            return
        job = socket.socket(fileno=descriptors[0])
        timeout, memory, guarded, filtered = encoding.REQUEST.unpack(message)
        walls = Walls(
            timeout,
            settings["resources"] | {"AS": memory, "CPU": int(timeout) + 2},
            user,
            working_filters if filtered else [],
            guarded,
            shared,
        )
        control.sendall(encoding.REPLY.pack(*supervise_child(job, divider, walls)))


def preload_all() -> None:
    """Import the whole library, for children that cannot read it: root has a Python of its own."""
    for name in sys.stdlib_module_names - {"antigravity"}:  # that one opens a browser
        if not name.startswith("_"):
            with contextlib.suppress(Exception):  # not built, or of Windows
                __import__(name)


@dataclass(frozen=True)
class Walls:
    """The walls and limits around one job."""

    timeout: float  # seconds
    resources: dict[str, int]  # limits, by the names of RLIMITs
    user: int | None  # to run as; None for the runner's own
    filters: list[filters.Files | filters.SystemCalls]
    guarded: bool
    shared: list[str]  # paths that the guard lets be read


def supervise_child(
    job: socket.socket, divider: isolation.Divider, walls: Walls
) -> tuple[bool, int]:
    """Run one job in a child. Return whether it ran out of time, and its wait status."""
    alive, lifeline = os.pipe()  # closes with the child, the only one to hold `lifeline`
    deadline = time.monotonic() + walls.timeout
    child = divider.fork()
    if child == 0:
        be_child(job, lifeline, walls)
    os.close(lifeline)
    events = select.poll()
    events.register(alive, select.POLLIN)
    events.register(job, 0)  # POLLHUP alone: the grader has seen enough, or is gone
    timed_out = not events.poll(max(0.0, deadline - time.monotonic()) * 1000)
    try:
        os.killpg(child, signal.SIGKILL)  # no effect on the status of a child that has ended
    except (ProcessLookupError, PermissionError):
        os.kill(child, signal.SIGKILL)  # it is not yet, or no longer, the leader of a group
    _, status = os.waitpid(child, 0)
    os.close(alive)
    job.close()
    return timed_out, status


def be_child(job: socket.socket, lifeline: int, walls: Walls) -> None:
    """Put up the inner walls, run the job, and end. Without the walls there is no job."""
    try:
        os.setsid()
        os.dup2(1, 2)  # 0 and 1 are /dev/null already
        isolation.drop_rights(walls.user)
        isolation.limit_resources(walls.resources)
        for kernel_filter in walls.filters:
            kernel_filter.restrict()
        first, second = sorted((job.fileno(), lifeline))
        os.closerange(CONTROL, first)
        os.closerange(first + 1, second)
        os.closerange(second + 1, 256)
        random.seed(0)  # the same completion gets the same verdict
        reason = run_job(job, walls)
        if reason:
            send_line(job, {"reason": reason})
    finally:
        os._exit(0)


def run_job(job: socket.socket, walls: Walls) -> str | None:
    """Run a job's code and calls; send the outputs. Return what went wrong, if anything did."""
    with job.makefile("rb") as stream:
        [length] = encoding.LENGTH.unpack(stream.read(encoding.LENGTH.size))
        work = json.loads(stream.read(length))
    try:
        if work["is_completion"]:
            parts = program.find_program(work["code"], work["entry_point"])
        else:
            code = compile(work["code"], "<completion>", "exec", dont_inherit=True)
            parts = [program.Part(code, must_succeed=True)]
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return "unparsable"
    packages.preload_packages({name for part in parts for name in program.names_in(part.code)})
    if walls.guarded:
        isolation.install_guard(walls.shared)
    try:
        module = types.ModuleType("completion")
        sys.modules["completion"] = module
        execute_parts(parts, module.__dict__)
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


def execute_parts(parts: list[program.Part], namespace: dict) -> None:
    """Run a program; pass over parts that fail and may, but for what is forbidden or too large."""
    for part in parts:
        try:
            exec(part.code, namespace)
        except (isolation.Forbidden, MemoryError):
            raise
        except BaseException:
            if part.must_succeed:
                raise


def send_line(job: socket.socket, answer: dict) -> None:
    """Send one line."""
    line = memoryview(json.dumps(answer).encode() + b"\n")
    while line:
        line = line[os.write(job.fileno(), line) :]


main()
