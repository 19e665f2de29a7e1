"""The fork server: a process that has imported torch and TRL, from which jobs fork.

The imports take 5 s on one core, which is a large part of a job with a small model. The workflow
starts one fork server (workflow/rules/start.smk) and exports the path of its socket in
RAPID_FORK_SERVER. A `rapid` command sends its arguments, working folder, environment and standard
streams to this socket. The fork server forks a child that runs the command, and answers with the
child's exit status. If the variable is not set, or nothing answers on the socket, the command runs
in its own process, with the same result. But `rapid train` waits until the fork server is ready,
because its imports would disturb the runtime.

If other processes disturb the runtime of a training run (`rapid.training.usage`), the run exits
with RETRY_STATUS. It is run again in a new child, at most twice, unless the reruns so far are
already a tenth of all commands.

Some processes of graders, for example a started Lean, are kept from one job to the next. The fork
server lends them to the child before the fork (`lend`), and takes them back after the child's end.

The fork server has one thread and does not use a GPU, because neither threads nor CUDA survive a
fork. It ends with its parent. If a command is killed, its child ends too.
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

from rapid.processes.lifetimes import describe_kill, end_with_parent

SOCKET_VARIABLE = "RAPID_FORK_SERVER"
PID_VARIABLE = "RAPID_FORK_SERVER_PID"
ATTEMPT_VARIABLE = "RAPID_ATTEMPT"  # number of the attempt to run the command, from 1
MAX_ATTEMPTS = 3
RETRY_STATUS = os.EX_TEMPFAIL  # of a run whose result is correct, but whose runtime was disturbed
MAX_RETRY_SHARE = 0.1  # reruns as a share of all commands so far
STREAM_COUNT = 3  # file descriptors sent with a request: standard input, output and error
MESSAGE_BYTES = 1 << 20  # largest size of a request
POLL_SECONDS = 0.05  # interval between checks of connections and children
END_SIGNALS = signal.SIGTERM, signal.SIGINT
GRACE_SECONDS = 60  # for jobs to save a checkpoint when the fork server ends

# A LendFunction is called before the fork, with a command's arguments. If it lends processes to the
# child, it returns a TakeBackFunction, which is called after the child's end. The argument of that
# function says whether the child succeeded.
TakeBackFunction = Callable[[bool], None]
LendFunction = Callable[[list[str]], TakeBackFunction | None]


def get_attempt() -> int:
    """Return the number of this attempt to run the command, from 1."""
    return int(os.environ.get(ATTEMPT_VARIABLE, "1"))


def run_in_child(arguments: list[str]) -> int | None:
    """Run `rapid` in a child of the fork server; run it again if its runtime was disturbed.

    Args:
        arguments: the arguments of `rapid`.

    Returns:
        The exit status; None if there is no fork server.
    """
    if arguments[:1] == ["train"]:
        _wait_until_ready()
    for attempt in range(1, MAX_ATTEMPTS + 1):
        status = _send_request(arguments, {**os.environ, ATTEMPT_VARIABLE: str(attempt)})
        if status != RETRY_STATUS:
            break
        print(
            "rapid: other processes used this job's core, so the job runs again (attempt "
            f"{attempt + 1} of {MAX_ATTEMPTS})",
            file=sys.stderr,
        )
    return status


def _wait_until_ready() -> None:
    """Wait until the fork server has imported its packages and listens, or has ended."""
    path, pid = os.environ.get(SOCKET_VARIABLE), os.environ.get(PID_VARIABLE)
    if not (path and pid):
        return
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        server = psutil.Process(int(pid))
        while not Path(path).exists() and server.status() != psutil.STATUS_ZOMBIE:
            time.sleep(POLL_SECONDS)


def _send_request(arguments: list[str], environment: dict[str, str]) -> int | None:
    """Send a command to the fork server, and return its exit status; None if it cannot be sent."""
    path = os.environ.get(SOCKET_VARIABLE)
    if not path:
        return None
    request = {"arguments": arguments, "folder": os.getcwd(), "environment": environment}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(path)
            socket.send_fds(connection, [json.dumps(request).encode()], range(STREAM_COUNT))
        except OSError:  # nothing listens, or the environment is too large to be sent
            return None
        answer = connection.recv(64)
    if not answer:
        print(
            "rapid: the fork server, from which the workflow starts its jobs, has ended, and this "
            "job with it. Run the workflow again",
            file=sys.stderr,
        )
        return 1
    if (status := int(answer)) < 0:
        description = describe_kill(signal.Signals(-status).name)
        print(f"rapid: the job was {description}", file=sys.stderr)
        return 128 - status
    return status


def serve_requests(
    path: Path, parent: int, warm_up: Callable[[], None], run: Callable, lend: LendFunction
) -> None:
    """Import what jobs need, then fork a child for each request until the parent ends.

    A signal of `END_SIGNALS` ends the fork server too.

    Args:
        path: path of the socket to listen on.
        parent: PID of the parent, which may end while this process imports packages.
        warm_up: imports the packages that jobs need, and does other work before the first fork.
        run: called in the child with the command's arguments; returns the exit status.
        lend: called before each fork; see `LendFunction`.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # a pool of threads would not survive the fork
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # else imports might initialise CUDA before the fork
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    warm_up()
    # Until here Linux killed this process if its parent ended. From now on the loop below checks
    # whether the parent is alive, so that this process can end its children and remove the socket.
    end_with_parent(0)  # 0: no signal
    gc.freeze()  # children's garbage collections then skip the imported objects
    received_signals: list[int] = []  # the loop below ends after the first signal
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
    """A forked child that runs a command, and the function that takes lent processes back."""

    pid: int
    take_back: TakeBackFunction | None


class _ForkServer:
    """Forks a child for each connection that sends a request, and answers with its exit status.

    Args:
        handlers: the signal handlers from before `serve_requests`, which children restore.
    """

    def __init__(self, listener: socket.socket, run: Callable, lend: LendFunction, handlers: dict):
        self._listener, self._run, self._lend, self._handlers = listener, run, lend, handlers
        self._children: dict[socket.socket, _Child] = {}
        self._pending: set[socket.socket] = set()  # connections that have sent no request so far
        # Connections of commands that ended before their children.
        self._abandoned: set[socket.socket] = set()
        self._commands = self._retries = 0

    def handle_connections(self) -> None:
        """Accept connections, fork a child for each request, and end children of killed commands.

        Waits at most `POLL_SECONDS` for one of these.
        """
        waiting = self._children.keys() - self._abandoned
        sockets = [self._listener, *self._pending, *waiting]
        readable, _, _ = select.select(sockets, [], [], POLL_SECONDS)
        for connection in readable:
            if connection is self._listener:
                self._pending.add(connection.accept()[0])
            elif connection in self._pending:
                self._pending.remove(connection)
                if child := self._fork_child(connection):
                    self._commands += 1
                    self._children[connection] = child
                else:
                    connection.close()
            else:  # a command sends one request only, so readable means that it has ended
                self._abandoned.add(connection)
                os.kill(self._children[connection].pid, signal.SIGTERM)

    def collect_children(self) -> None:
        """Send the exit status of each child that has ended to its command."""
        for connection, child in list(self._children.items()):
            pid, wait_status = os.waitpid(child.pid, os.WNOHANG)
            if not pid:
                continue
            status = os.waitstatus_to_exitcode(wait_status)
            has_succeeded = status in (0, RETRY_STATUS)
            if status == RETRY_STATUS and self._retries >= MAX_RETRY_SHARE * self._commands:
                status = 0  # too many reruns already: keep the result, which is correct
            self._retries += status == RETRY_STATUS
            with contextlib.suppress(OSError):  # the command has ended
                connection.send(str(status).encode())
            connection.close()
            self._abandoned.discard(connection)
            del self._children[connection]
            if child.take_back:
                child.take_back(has_succeeded)

    def end_children(self) -> None:
        """Send SIGTERM to all children, and wait until they have saved a checkpoint and ended.

        Waits at most `GRACE_SECONDS`.
        """
        pids = [child.pid for child in self._children.values()]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while pids and time.monotonic() < deadline:
            pids = [pid for pid in pids if not os.waitpid(pid, os.WNOHANG)[0]]
            time.sleep(POLL_SECONDS)

    def _fork_child(self, connection: socket.socket) -> _Child | None:
        """Fork a child for a connection's request; None without a request or memory for a child."""
        try:
            message, streams, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, STREAM_COUNT)
        except OSError:
            message = b""
        if not message:
            return None
        request = json.loads(message)
        take_back = self._lend(request["arguments"])
        parent = os.getpid()
        # Signals that arrive before the child has restored its handlers are delivered afterwards.
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        try:
            pid = os.fork()
        except OSError as error:  # no memory: this command fails, other children go on
            with contextlib.suppress(OSError):  # the command's log may be closed or full
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
                take_back(True)  # no child has used the processes
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
            for server_socket in (connection, self._listener, *self._pending, *self._children):
                server_socket.close()
            os.chdir(request["folder"])
            os.environ.clear()
            os.environ.update(request["environment"])
            status = self._run(request["arguments"])
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):  # the disk with the command's log may be full
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)
