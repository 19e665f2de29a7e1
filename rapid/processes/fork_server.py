"""A warm process that jobs are forked from, so that each does not import torch and TRL anew.

Importing them takes 5 s of a core; with models as small as the embedded ones that is a large part
of a job. The workflow starts one warm process for its duration (`Snakefile`) and names its socket
in RAPID_WARM. The `rapid` command hands its arguments, folder, environment and standard streams to
it; the warm process forks a child that runs the command, and answers with its exit status. Where
RAPID_WARM is not set, or nobody answers there, the command runs by itself: the result is the same.

A run that was disturbed (`rapid.training.usage`) says so by its status, AGAIN. It is run again in
another child, at most twice, as long as this happens to no more than a tenth of all commands.

What a job's graders may keep from job to job, as a Lean that has started, is lent to the child by
the fork (`lend`), and taken back when it has ended.

The warm process has one thread and has touched no GPU when it forks. It ends with its parent. A
command that is killed takes its child with it.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from rapid.processes.lifetimes import KILLED, end_with_parent

VARIABLE = "RAPID_WARM"
ATTEMPT = "RAPID_ATTEMPT"  # tells a child which attempt at its command it is
ATTEMPTS = 3
AGAIN = os.EX_TEMPFAIL
SHARE = 0.1  # of all commands so far that may say AGAIN and be run again
STREAMS = 3  # standard input, output, error
MESSAGE_BYTES = 1 << 20
POLL_SECONDS = 0.05
SIGNALS = signal.SIGTERM, signal.SIGINT
GRACE_SECONDS = 60  # that jobs have to save what they have, before they end with this process


def attempt() -> int:
    """Return which attempt at its command this process is, from 1."""
    return int(os.environ.get(ATTEMPT, "1"))


def run_in_child(arguments: list[str]) -> int | None:
    """Have the warm process run `rapid`; return the status, None where there is no warm process."""
    for number in range(1, ATTEMPTS + 1):
        status = _ask(arguments, {**os.environ, ATTEMPT: str(number)})
        if status != AGAIN:
            break
        print(f"rapid: others had this job's core: attempt {number}", file=sys.stderr)
    return status


def _ask(arguments: list[str], environment: dict[str, str]) -> int | None:
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    request = {"arguments": arguments, "folder": os.getcwd(), "environment": environment}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(path)
            socket.send_fds(connection, [json.dumps(request).encode()], range(STREAMS))
        except OSError:  # nobody is there, or the environment is too large to be sent
            return None
        answer = connection.recv(64)
    if not answer:
        print("rapid: the warm process ended before the job did", file=sys.stderr)
        return 1
    if (status := int(answer)) < 0:
        name = signal.Signals(-status).name
        print(f"rapid: the job was killed by {name}{KILLED}", file=sys.stderr)
        return 128 - status
    return status


Lend = Callable[[list[str]], Callable[[bool], None] | None]


def serve(path: Path, parent: int, prepare: Callable[[], None], run: Callable, lend: Lend) -> None:
    """Import what jobs need, then fork a child for each request until the parent process ends.

    Args:
        path: of the socket to listen on.
        parent: process id of the parent, which may end while this process imports.
        prepare: imports what jobs need, and does what they would all do first.
        run: runs a command from its arguments, in a child; its exit status.
        lend: called with a command's arguments before the fork; it may return a function, to be
            called after the child's end with whether that was a good one.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # a pool of threads would not survive the fork
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # an import may ask for them, and CUDA survives no fork
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    prepare()
    end_with_parent(0)  # from now on this process looks itself whether it lives, and tidies up
    gc.freeze()  # a child's collections need not walk what it has imported
    children: dict[socket.socket, tuple[int, Callable[[bool], None] | None]] = {}
    unheard: set[socket.socket] = set()  # connected, and yet to say what to run
    gone: set[socket.socket] = set()  # of commands that ended before their child
    commands = repeated = 0
    told: list[int] = []  # signals to end by; Ctrl-C in a terminal is one, of the jobs too
    before = {one: signal.signal(one, lambda number, _: told.append(number)) for one in SIGNALS}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        while os.getppid() == parent and not told:
            heard = [listener, *unheard, *(children.keys() - gone)]
            readable, _, _ = select.select(heard, [], [], POLL_SECONDS)
            for ready in readable:
                if ready is listener:
                    unheard.add(listener.accept()[0])
                elif ready in unheard:
                    unheard.remove(ready)
                    others = [listener, *unheard, *children]
                    if job := _fork(run, lend, ready, others, before):
                        commands += 1
                        children[ready] = job
                    else:
                        ready.close()
                else:  # a command says nothing after its request: it is gone
                    gone.add(ready)
                    os.kill(children[ready][0], signal.SIGTERM)
            for connection, (child, take_back) in list(children.items()):
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    code = os.waitstatus_to_exitcode(status)
                    ended_well = code in (0, AGAIN)
                    if code == AGAIN and repeated >= SHARE * commands:
                        code = 0
                    repeated += code == AGAIN
                    with contextlib.suppress(OSError):  # the command is gone
                        connection.send(str(code).encode())
                    connection.close()
                    gone.discard(connection)
                    del children[connection]
                    if take_back:
                        take_back(ended_well)
    _end([child for child, _ in children.values()])
    path.unlink()
    gc.unfreeze()


def _end(children: list[int]) -> None:
    """Tell children to end, and wait for those that save something first."""
    for child in children:
        os.kill(child, signal.SIGTERM)
    until = time.monotonic() + GRACE_SECONDS
    while children and time.monotonic() < until:
        children = [child for child in children if not os.waitpid(child, os.WNOHANG)[0]]
        time.sleep(POLL_SECONDS)


def _fork(
    run: Callable, lend: Lend, connection: socket.socket, others: list[socket.socket], handlers
) -> tuple[int, Callable[[bool], None] | None] | None:
    """Fork a child that runs the request; return its process id, and what `lend` returned.

    None where the command went before it said anything, or there is no memory for a child.
    """
    try:
        message, streams, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, STREAMS)
    except OSError:
        message = b""
    if not message:
        return None
    request = json.loads(message)
    take_back = lend(request["arguments"])
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # none is lost before the child has handlers
    try:
        child = os.fork()
    except OSError as error:  # other jobs go on
        with contextlib.suppress(OSError):  # nobody reads its log
            os.write(streams[-1], f"rapid: no child for this job: {error}\n".encode())
        with contextlib.suppress(OSError):  # the command is gone
            connection.send(b"1")
        child = None
    if child != 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        for stream in streams:
            os.close(stream)
        if child is None and take_back:
            take_back(True)
        return (child, take_back) if child else None
    status = 1
    try:
        end_with_parent()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if os.getppid() != parent:  # it ended just before
            os._exit(status)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        for other in [connection, *others]:
            other.close()
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        status = run(request["arguments"])
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):  # the disk of its log is full
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
