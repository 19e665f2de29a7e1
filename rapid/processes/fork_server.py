"""The fork server: a process that jobs are forked from, so that each need not import torch and TRL.

These imports take 5 s of a core, a large part of a job with models as small as the embedded ones.
The workflow starts one fork server for its duration (`Snakefile`) and exports its socket's path in
RAPID_WARM. The `rapid` command sends it its arguments, folder, environment and standard streams;
the fork server forks a child that runs the command, and answers with its exit status. If RAPID_WARM
is not set, or nobody answers there, the command runs by itself, with the same result.

A run that was disturbed (`rapid.training.usage`) exits with RETRY_STATUS. It is run again in a new
child, at most twice, as long as no more than a tenth of all commands are run again.

Processes of graders that outlive a job, such as a Lean that has started, are lent to the child
before the fork (`lend`), and taken back when it has ended.

The fork server has one thread, and has not used a GPU when it forks. It ends with its parent. If a
command is killed, its child ends too.
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
from typing import NamedTuple

from rapid.processes.lifetimes import KILLED_HINT, end_with_parent

SOCKET_VARIABLE = "RAPID_WARM"
ATTEMPT_VARIABLE = "RAPID_ATTEMPT"  # number of the attempt at a command, for its child
MAX_ATTEMPTS = 3
RETRY_STATUS = os.EX_TEMPFAIL
MAX_RETRY_SHARE = 0.1  # of all commands so far
STREAM_COUNT = 3  # standard input, output, error
MESSAGE_BYTES = 1 << 20
POLL_SECONDS = 0.05
END_SIGNALS = signal.SIGTERM, signal.SIGINT
GRACE_SECONDS = 60  # for jobs to save a checkpoint when the fork server ends

TakeBack = Callable[[bool], None]  # called after a child's end, with whether it ended well
Lender = Callable[[list[str]], TakeBack | None]


def get_attempt() -> int:
    """Return the number of the attempt at its command that this process is, from 1."""
    return int(os.environ.get(ATTEMPT_VARIABLE, "1"))


def run_in_child(arguments: list[str]) -> int | None:
    """Have the fork server run `rapid`; return the exit status, None if there is no fork server."""
    for attempt in range(1, MAX_ATTEMPTS + 1):
        status = _send_request(arguments, {**os.environ, ATTEMPT_VARIABLE: str(attempt)})
        if status != RETRY_STATUS:
            break
        print(
            "rapid: other processes used this job's core, so the job runs again (attempt "
            f"{attempt})",
            file=sys.stderr,
        )
    return status


def _send_request(arguments: list[str], environment: dict[str, str]) -> int | None:
    path = os.environ.get(SOCKET_VARIABLE)
    if not path:
        return None
    request = {"arguments": arguments, "folder": os.getcwd(), "environment": environment}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(path)
            socket.send_fds(connection, [json.dumps(request).encode()], range(STREAM_COUNT))
        except OSError:  # nobody listens, or the environment is too large to be sent
            return None
        answer = connection.recv(64)
    if not answer:
        print("rapid: the fork server ended before the job did", file=sys.stderr)
        return 1
    if (status := int(answer)) < 0:
        name = signal.Signals(-status).name
        print(f"rapid: the job was killed by {name}{KILLED_HINT}", file=sys.stderr)
        return 128 - status
    return status


def serve_requests(
    path: Path, parent: int, prepare: Callable[[], None], run: Callable, lend: Lender
) -> None:
    """Import what jobs need, then fork a child for each request until the parent process ends.

    Args:
        path: of the socket to listen on.
        parent: process id of the parent, which may end while this process imports.
        prepare: imports what jobs need, and does what all of them would do first.
        run: runs a command from its arguments, in a child, and returns the exit status.
        lend: called with a command's arguments before the fork; may return a function that is
            called after the child's end, with whether the child ended well.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # a pool of threads would not survive the fork
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # imports may initialise CUDA, which survives no fork
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    prepare()
    end_with_parent(0)  # from now on the loop below looks whether the parent lives, and tidies up
    gc.freeze()  # keeps the imported objects out of the children's garbage collections
    received_signals: list[int] = []  # those that end this process; Ctrl-C reaches the jobs too
    handlers = {
        end_signal: signal.signal(end_signal, lambda number, _: received_signals.append(number))
        for end_signal in END_SIGNALS
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        server = _ForkServer(listener, run, lend, handlers)
        while os.getppid() == parent and not received_signals:
            server.handle_connections()
            server.collect_children()
    server.end_children()
    path.unlink()
    gc.unfreeze()


class _Child(NamedTuple):
    pid: int
    take_back: TakeBack | None


class _ForkServer:
    """Forks a child for each connection that sends a request, and answers with its exit status.

    Args:
        handlers: the signal handlers that children get back.
    """

    def __init__(self, listener: socket.socket, run: Callable, lend: Lender, handlers: dict):
        self._listener, self._run, self._lend, self._handlers = listener, run, lend, handlers
        self._children: dict[socket.socket, _Child] = {}
        self._without_request: set[socket.socket] = set()
        self._abandoned: set[socket.socket] = set()  # their commands ended before their children
        self._commands = self._retries = 0

    def handle_connections(self) -> None:
        """Wait a moment for connections and requests, and for commands that are killed."""
        waiting = self._children.keys() - self._abandoned
        sockets = [self._listener, *self._without_request, *waiting]
        readable, _, _ = select.select(sockets, [], [], POLL_SECONDS)
        for connection in readable:
            if connection is self._listener:
                self._without_request.add(connection.accept()[0])
            elif connection in self._without_request:
                self._without_request.remove(connection)
                if child := self._fork_child(connection):
                    self._commands += 1
                    self._children[connection] = child
                else:
                    connection.close()
            else:  # a command sends nothing after its request, so it has ended
                self._abandoned.add(connection)
                os.kill(self._children[connection].pid, signal.SIGTERM)

    def collect_children(self) -> None:
        """Answer the commands whose children have ended."""
        for connection, child in list(self._children.items()):
            pid, wait_status = os.waitpid(child.pid, os.WNOHANG)
            if not pid:
                continue
            status = os.waitstatus_to_exitcode(wait_status)
            ended_well = status in (0, RETRY_STATUS)
            if status == RETRY_STATUS and self._retries >= MAX_RETRY_SHARE * self._commands:
                status = 0
            self._retries += status == RETRY_STATUS
            with contextlib.suppress(OSError):  # the command has ended
                connection.send(str(status).encode())
            connection.close()
            self._abandoned.discard(connection)
            del self._children[connection]
            if child.take_back:
                child.take_back(ended_well)

    def end_children(self) -> None:
        """Send SIGTERM to all children, and give them time to save a checkpoint."""
        pids = [child.pid for child in self._children.values()]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while pids and time.monotonic() < deadline:
            pids = [pid for pid in pids if not os.waitpid(pid, os.WNOHANG)[0]]
            time.sleep(POLL_SECONDS)

    def _fork_child(self, connection: socket.socket) -> _Child | None:
        """Fork a child that runs the request of a connection.

        Returns:
            None if the command ended before it sent a request, or there is no memory for a child.
        """
        try:
            message, streams, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, STREAM_COUNT)
        except OSError:
            message = b""
        if not message:
            return None
        request = json.loads(message)
        take_back = self._lend(request["arguments"])
        parent = os.getpid()
        # Until the child has its own handlers, no signal may be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        try:
            pid = os.fork()
        except OSError as error:  # the children that run go on
            with contextlib.suppress(OSError):  # nobody reads the command's log
                os.write(
                    streams[-1],
                    f"rapid: the fork server cannot start this job: {error}\n".encode(),
                )
            with contextlib.suppress(OSError):  # the command has ended
                connection.send(b"1")
            pid = None
        if pid == 0:
            self._run_request(request, streams, connection, parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
        for stream in streams:
            os.close(stream)
        if pid is None:
            if take_back:
                take_back(True)
            return None
        return _Child(pid, take_back)

    def _run_request(
        self, request: dict, streams: list[int], connection: socket.socket, parent: int
    ) -> None:
        """Run a request in the forked child, and exit with its status."""
        status = 1
        try:
            end_with_parent()
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
            if os.getppid() != parent:  # the parent ended before end_with_parent took effect
                os._exit(status)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            for inherited in (connection, self._listener, *self._without_request, *self._children):
                inherited.close()
            os.chdir(request["folder"])
            os.environ.clear()
            os.environ.update(request["environment"])
            status = self._run(request["arguments"])
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):  # the disk of the command's log is full
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)
