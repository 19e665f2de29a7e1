"""The runner: forks one child per completion and never sees what goes in or out.

    python -S -s -P -B runner CONTROL_FD LAYER PATHS HIDDEN SHARED

CONTROL_FD is a socket to the grader. A request is one `encoding.REQUEST` with the file descriptor
of another socket, over which the grader sends the job straight to the child and gets its outputs
straight back. So nothing of an earlier job, the reference solution least of all, is in the memory
that a later child inherits. When the child is gone, an `encoding.REPLY` follows.

A job is its length and a JSON object, which `sandbox.encode_job` makes. The child finds the program
in a completion (`program.find_program`), runs it, and answers a line per call, {"output": ...}, or
one {"reason": ...} and no more.

PATHS stay readable, but for what is below HIDDEN; of that, SHARED does, packages that completions
may import. Each is joined by colons. LAYER "namespaces" puts up walls around the runner. In the
others they stand already, or there are none.
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

# Imported once here instead of in every child: what solutions use.
PRELOADED = (
    "array bisect calendar cmath collections copy dataclasses datetime decimal enum fractions "
    "functools heapq itertools math numbers operator re statistics string textwrap typing"
)


def main() -> None:
    given, layer, *lists = sys.argv[1:]
    control_fd = os.dup(int(given))  # a low number, below what children close
    os.close(int(given))
    paths, hidden, shared = ([path for path in each.split(os.pathsep) if path] for each in lists)
    sys.meta_path.append(packages.Finder(shared))
    for name in PRELOADED.split():
        __import__(name)
    if layer == "namespaces":
        isolation.enclose(paths, hidden, shared)
    control = socket.socket(fileno=control_fd)
    divider, user = isolation.Divider(), isolation.spare_user()
    if not isolation.can_read(os.path.dirname(os.__file__), user):
        preload_all()
    known = filters.Files([*paths, *shared], hidden), filters.SystemCalls()
    working = [each for each in known if each.works]
    # A completion that runs as the same user is not to trace the runner.
    isolation.call("prctl", isolation.PR_SET_DUMPABLE, 0)
    gc.collect()
    gc.freeze()  # a collection in a child then leaves these pages shared
    hello = {"divided": divider.works, "user": os.geteuid() if user is None else user}
    hello |= {type(each).__name__: each.works for each in known}
    control.sendall(json.dumps(hello).encode() + b"\n")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, encoding.REQUEST.size, 1)
        if not message:  # the grader is gone
            return
        job = socket.socket(fileno=descriptors[0])
        timeout, memory, guarded, filtered = encoding.REQUEST.unpack(message)
        limits = Limits(timeout, memory, user, working if filtered else [], guarded, shared)
        control.sendall(encoding.REPLY.pack(*supervise(job, divider, limits)))


def preload_all() -> None:
    """Import the whole library, for children that cannot read it: root has a Python of its own."""
    for name in sys.stdlib_module_names - {"antigravity"}:  # that one opens a browser
        if not name.startswith("_"):
            with contextlib.suppress(Exception):  # not built, or of Windows
                __import__(name)


@dataclass(frozen=True)
class Limits:
    """What stands around one job."""

    timeout: float  # seconds
    memory: int  # bytes
    user: int | None  # to run as; None for the runner's own
    filters: list[filters.Files | filters.SystemCalls]
    guarded: bool
    shared: list[str]  # paths that the guard lets be read


def supervise(job: socket.socket, divider: isolation.Divider, limits: Limits) -> tuple[bool, int]:
    """Run one job in a child. Return whether it ran out of time, and its wait status."""
    alive, lifeline = os.pipe()  # closes with the child, the only one to hold `lifeline`
    deadline = time.monotonic() + limits.timeout
    child = divider.fork()
    if child == 0:
        be_child(job, lifeline, limits)
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


def be_child(job: socket.socket, lifeline: int, limits: Limits) -> None:
    """Put up the inner walls, run the job, and end. Without the walls there is no job."""
    try:
        os.setsid()
        os.dup2(1, 2)  # 0 and 1 are /dev/null already
        isolation.drop_rights(limits.user)
        isolation.limit(limits.memory, int(limits.timeout) + 2)
        for each in limits.filters:
            each.restrict()
        first, second = sorted((job.fileno(), lifeline))
        os.closerange(3, first)
        os.closerange(first + 1, second)
        os.closerange(second + 1, 256)
        random.seed(0)  # the same completion gets the same verdict
        reason = run(job, limits)
        if reason:
            write(job, {"reason": reason})
    finally:
        os._exit(0)


def run(job: socket.socket, limits: Limits) -> str | None:
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
    packages.preload({name for part in parts for name in program.names_in(part.code)})
    if limits.guarded:
        isolation.guard(limits.shared)
    try:
        module = types.ModuleType("completion")
        sys.modules["completion"] = module
        execute(parts, module.__dict__)
        function = module.__dict__.get(work["entry_point"])
        if function is None:
            return "no_answer"
        for call in work["calls"]:
            output = function(*encoding.decode(call))
            output = set(output) if work["as_sets"] else output
            write(job, {"output": encoding.encode_output(output)})
    except isolation.Forbidden:
        return "forbidden"
    except MemoryError:
        return "memory"
    except BaseException:  # SystemExit and KeyboardInterrupt too
        return "crashed"
    return None


def execute(parts: list[program.Part], namespace: dict) -> None:
    """Run a program; pass over parts that fail and may, but for what is forbidden or too large."""
    for part in parts:
        try:
            exec(part.code, namespace)
        except (isolation.Forbidden, MemoryError):
            raise
        except BaseException:
            if part.must_succeed:
                raise


def write(job: socket.socket, answer: dict) -> None:
    """Send one line."""
    line = memoryview(json.dumps(answer).encode() + b"\n")
    while line:
        line = line[os.write(job.fileno(), line) :]


main()
