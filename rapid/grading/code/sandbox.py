"""Runs hostile Python with nothing in its reach: the grader's side of `runner`.

One runner process serves many jobs, each in a child of its own that lives as long as the job. The
runner starts behind the strongest layer of walls that this system grants:

- "bwrap": bubblewrap around the runner;
- "namespaces": the same Linux namespaces, which the runner makes itself;
- "filters": the kernel's filters around each child, Landlock and seccomp together.

Behind each of them no file but Python's own, no network and no process of the host is in a child's
reach. A machine that has none of them grades nothing, unless the caller accepts that:

- "limits": limits on resources and, for root, a user without rights. A completion may read files
  and the environment of the grader's user, and may signal his processes.

In every layer the child is limited in time, memory and output, and starts neither processes nor
threads, and the filters that the kernel has stand too. `Sandbox.walls` says what stands.
"""

import contextlib
import importlib.util
import json
import logging
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from rapid.grading import limits
from rapid.grading.code.runner import encoding, packages
from rapid.grading.grader import GraderDied
from rapid.grading.memory import limit_memory
from rapid.grading.worker import LineReader, LineTooLong, Worker

log = logging.getLogger(__name__)

LAYERS = ("bwrap", "namespaces", "filters")  # what counts as walls, strongest first
UNSAFE_LAYER = "limits"

# How a job ended: by its receiver, by itself, by the clock, or by a line that was too long.
STOPPED, ENDED, TIMED_OUT, FLOODED = "stopped", "ended", "timed out", "flooded"

# The runner's socket is descriptor 3: of the first three, bubblewrap's own processes keep copies,
# which may be within a completion's reach.
_WITH_SOCKET = ["/bin/sh", "-c", 'exec "$@" 3<&0 </dev/null', "sh"]
_RUNNER = Path(__file__).resolve().with_name("runner")
_PYTHON, _PREFIX = os.path.realpath(sys._base_executable), sys.base_prefix  # of no virtual one


# What a trial job tries before a layer is trusted: to import from Python's library, and to read
# files that are not in it.
_TRIAL = """
import colorsys, os
def f(paths):
    reached = []
    for path in paths:
        try:
            os.open(path, os.O_RDONLY)
            reached.append(path)
        except OSError:
            pass
    return reached
"""

ADVICE = (
    "Install bubblewrap (apt install bubblewrap), allow user namespaces (sysctl "
    "user.max_user_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns), or use a kernel with Landlock (Linux "
    "5.13) and seccomp. To grade without a sandbox: --unsafe-sandbox of rapid grade, "
    "grading.unsafe_sandbox in params.yaml"
)


class SandboxError(GraderDied):
    """No layer of walls can be put up here."""


def encode_job(
    code: str, entry_point: str, calls: str, as_sets: bool = False, is_completion: bool = False
) -> bytes:
    """Return a job for `Sandbox.run`.

    Args:
        calls: JSON, a list of encoded argument lists.
        as_sets: whether to answer with the set of what each output holds, an iterator too.
        is_completion: whether `code` is a text with a program in it, and not a program to run as it
            is.
    """
    # Put together as text, since `calls` is the same, and long, for all completions of a problem.
    fields = {"code": code, "entry_point": entry_point, "as_sets": as_sets}
    job = json.dumps(fields | {"is_completion": is_completion})
    return f'{job[:-1]}, "calls": {calls}}}'.encode()


class Sandbox:
    """A runner behind walls. A context manager; safe to share between threads, which take turns.

    Args:
        memory_mb: address space of one job, 1e6 bytes, some 30 of which Python itself takes.
        layer: one of `LAYERS`; None for the strongest that works here.
        unsafe: whether to run without walls too, behind `UNSAFE_LAYER`, where no layer works.
        guarded: whether Python's guard is on, which names forbidden actions.
        filtered: whether the kernel's filters are on, as far as it has them. Both are off only in
            tests that attack the walls behind them.
    """

    def __init__(
        self,
        memory_mb: int = 512,
        layer: str | None = None,
        guarded: bool = True,
        filtered: bool = True,
        unsafe: bool = False,
    ):
        self.memory_mb = memory_mb
        self.layer = layer
        self.unsafe = unsafe
        self.guarded = guarded
        self.filtered = filtered
        self._lock = threading.Lock()
        self._runner: Worker | None = None
        self._hello: dict = {}

    def __enter__(self) -> Self:
        """Start the runner; raise SandboxError where no layer works, or not the one asked for."""
        self._start()
        level = logging.WARNING if self.layer == UNSAFE_LAYER else logging.INFO
        log.log(level, "code sandbox: %s", self.walls())
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def walls(self) -> str:
        """Return the walls that stand around a job, in words. The sandbox must have started."""
        files, calls = (self.filtered and self._hello[name] for name in ("Files", "SystemCalls"))
        files_open = "no file but Python's library, numpy and pandas"
        enclosed = f"no network, no host process, {files_open} (read-only)"
        user = self._hello["user"]
        whose = "the grader's own files" if user == os.geteuid() else "files that all may read"
        open_to = [
            files_open if files else f"{whose} in reach",
            "no socket, no signal" if calls else "the network in reach",
        ]
        description = {
            "bwrap": f"bubblewrap: {enclosed}",
            "namespaces": f"Linux namespaces: {enclosed}",
            "filters": f"no namespaces: {files_open}, no socket, no signal",
            "limits": f"NOT WALLED OFF (unsafe_sandbox): {', '.join(open_to)}",
        }
        divided = "a process namespace each" if self._hello["divided"] else "a session each"
        user_name = "the grader's user" if user == os.geteuid() else "another user"
        rights = f"as {user_name}, without capabilities"
        resources = f"{self.memory_mb} MB, no child process, no thread, no file written"
        stand = {"Landlock": files, "seccomp": calls, "Python guard": self.guarded}
        switches = ", ".join(f"{name} {'on' if on else 'off'}" for name, on in stand.items())
        return "; ".join([description[self.layer], divided, rights, resources, switches])

    def run(
        self, job: bytes, timeout: float, receive: Callable[[bytes], bool], line_limit: int
    ) -> str:
        """Run one job and hand each line that it answers to `receive`, until that returns False.

        The lines come from hostile code: they may be anything.

        Args:
            job: from `encode_job`.
            timeout: wall-clock seconds, from the start of the child to the last line.
            line_limit: bytes; a longer line ends the job.

        Returns:
            How it ended: STOPPED, ENDED, TIMED_OUT or FLOODED.

        Raises:
            GraderDied: the runner died over the job, or had died and (SandboxError) does not start.
        """
        with self._lock:
            if self._runner is None or not self._runner.lives:
                self._stop()
                self._start()
            try:
                return self._run(job, timeout, receive, line_limit, self.guarded)
            except BaseException:
                self._stop()  # mid-job: only a new runner is in a known state
                raise

    def _run(
        self, job: bytes, timeout: float, receive: Callable, line_limit: int, guarded: bool
    ) -> str:
        deadline = time.monotonic() + timeout + limits.CODE_GRACE_SECONDS
        request = encoding.REQUEST.pack(timeout, self.memory_mb * 1_000_000, guarded, self.filtered)
        job_socket, child_end = socket.socketpair()
        ending = TIMED_OUT
        with contextlib.suppress(ConnectionError, TimeoutError), job_socket:
            with child_end:
                socket.send_fds(self._runner.connection, [request], [child_end.fileno()])
            job_socket.settimeout(max(0.001, deadline - time.monotonic()))
            # A child may die before it has read all; what it answered is still to be read.
            with contextlib.suppress(ConnectionError):
                job_socket.sendall(encoding.LENGTH.pack(len(job)) + job)
            ending = _read_lines(LineReader(job_socket, line_limit), deadline, receive)
        # With the socket closed, the child is ended.
        reply = self._runner.ask(b"", limits.CODE_REPLY_SECONDS)
        if len(reply) != encoding.REPLY.size:
            self._stop()
            if ending in (STOPPED, FLOODED):
                return ending  # what the child answered decides, whatever became of the runner
            raise GraderDied("the sandbox's runner died, or does not respond")
        timed_out, _status = encoding.REPLY.unpack(reply)
        return TIMED_OUT if ending == ENDED and timed_out else ending

    def _start(self) -> None:
        """Start a runner behind `layer`, or behind the first layer that works."""
        failures = []
        layers = (*LAYERS, UNSAFE_LAYER) if self.unsafe else LAYERS
        for layer in layers if self.layer is None else {self.layer}.intersection(layers):
            try:
                self._launch(layer)
                self._try_walls(layer)
            except GraderDied as error:
                self._stop()
                failures.append(f"{layer}: {error}")
            else:
                self.layer = layer  # for good: a restart must not weaken the walls
                return
        raise SandboxError(
            f"completions cannot be sandboxed here ({'; '.join(failures)}). {ADVICE}"
        )

    def _launch(self, layer: str) -> None:
        """Start a runner behind this layer, or raise SandboxError with the last line it printed."""
        with tempfile.TemporaryFile() as errors:
            self._runner = Worker(
                limit_memory(_build_command(layer), self.memory_mb + limits.CODE_RUNNER_MB),
                # Sets print in the same order, and numpy tries no threads.
                env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"},
                cwd="/",
                stderr=errors,
            )
            try:
                self._hello = json.loads(self._runner.ask(b"", limits.CODE_START_SECONDS))
            except ValueError:
                self._stop()
                errors.seek(0)
                lines = errors.read().decode(errors="replace").strip().splitlines()
                # Of a traceback the error.
                raise SandboxError(lines[-1] if lines else "the runner did not start") from None

    def _try_walls(self, layer: str) -> None:
        """Raise SandboxError unless a job without the guard runs and can read nothing outside."""
        names = {"Files": "Landlock", "SystemCalls": "seccomp"}
        missing = [name for key, name in names.items() if not (self.filtered and self._hello[key])]
        if layer == "filters" and missing:
            raise SandboxError(f"no {' and no '.join(missing)}")
        answers = []
        paths = [__file__, "/etc/passwd", f"/proc/{os.getpid()}/environ"]
        trial = encode_job(_TRIAL, "f", json.dumps([[paths]]))
        seconds = limits.CODE_START_SECONDS
        self._run(trial, seconds, lambda line: answers.append(line) or False, 10_000, False)
        answer = json.loads(answers[0]) if answers else {}
        if "output" not in answer:
            raise SandboxError(
                f"a trial job answered {answer}; can user {self._hello['user']} read {_PREFIX}?"
            )
        if answer["output"] and layer != UNSAFE_LAYER:
            raise SandboxError(f"a trial job could read {', '.join(answer['output'])}")

    def _stop(self) -> None:
        if self._runner is not None:
            self._runner.end()
            self._runner = None


def _read_lines(reader: LineReader, deadline: float, receive: Callable[[bytes], bool]) -> str:
    """Hand on lines until there are enough; raise TimeoutError after `deadline` (`monotonic`)."""
    try:
        while receive(reader.read_line(deadline)):
            pass  # the receiver's time counts too
    except EOFError:
        return ENDED
    except LineTooLong:
        return FLOODED
    return STOPPED


def _build_command(layer: str) -> list[str]:
    """Return the command line that starts a runner behind this layer, or raise SandboxError."""
    paths = _readable_paths()
    hidden, shared = _find_packages(paths), _shared_packages()
    settings = {"layer": layer, "paths": paths, "hidden": hidden, "shared": shared}
    settings["resources"] = limits.CODE_RESOURCES
    # No site packages, no environment, no bytecode written.
    runner = [_PYTHON, "-S", "-s", "-P", "-B", str(_RUNNER), json.dumps(settings)]
    if layer != "bwrap":
        return [*_WITH_SOCKET, *runner]
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxError("bwrap is not on PATH")
    command = [bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    command += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    # What the runner needs to divide its children from each other; they have none of it.
    command += ["--cap-add", "CAP_SYS_ADMIN"]
    if os.geteuid() == 0:
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL"):
            command += ["--cap-add", capability]
    else:
        command.append("--unshare-user")
    *library, runner_folder = paths
    command += _bind_paths(library)
    for path in hidden:
        command += ["--perms", "0755", "--tmpfs", path]
    command += _bind_paths([*shared, runner_folder])  # which may lie in these
    for path in (*hidden, "/"):
        command += ["--remount-ro", path]
    return [*_WITH_SOCKET, *command, "--chdir", "/", *runner]


def _bind_paths(paths: list[str]) -> list[str]:
    """Return bubblewrap's arguments that put paths into the box."""
    # It would make the folders above them unreadable to all but their owner.
    above = {str(folder) for path in paths for folder in Path(path).parents} - {"/"}
    dirs = [word for folder in sorted(above) for word in ("--perms", "0755", "--dir", folder)]
    return dirs + [word for path in paths for word in ("--ro-bind", path, path)]


def _readable_paths() -> list[str]:
    """Return the paths that Python needs: interpreter, its library, C libraries; last `runner`."""
    candidates = [
        _PYTHON,
        f"{_PREFIX}/lib",
        *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache"),
        str(_RUNNER),
    ]
    return [path for path in dict.fromkeys(candidates) if os.path.exists(path)]


def _find_packages(paths: list[str]) -> list[str]:
    """Return the folders of installed packages below these paths.

    Completions may use few of them, and this project with its problems may be in one.
    """
    return [
        str(folder)
        for path in paths
        if os.path.isdir(path)
        for folder in sorted(Path(path).glob("python*/*-packages"))
    ]


def _shared_packages() -> list[str]:
    """Return the paths of the packages that completions may import, and of their C libraries."""
    paths = []
    for name in packages.NAMES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            file = Path(spec.origin)
            path = file.parent if spec.submodule_search_locations else file
            libraries = path.with_name(f"{name}.libs")
            paths += [str(part) for part in (path, libraries) if part.exists()]
    return paths
