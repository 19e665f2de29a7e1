"""Runs hostile Python programs in a sandbox. The part inside the sandbox is `runner`.

One runner process serves many jobs. It forks a child for each job, which ends with the job. The
runner is started in the strongest layer that works on this machine:

- "bwrap": bubblewrap around the runner;
- "namespaces": the same Linux namespaces, made by the runner itself;
- "filters": filters in the kernel around each child, Landlock and seccomp together.

In each of these layers a child cannot reach the network, the host's processes, or any file but
those of Python and of the packages that completions may import (`runner.packages`). If none of them
works, nothing is graded, unless the caller accepts a fourth layer (`unsafe`):

- "limits": limits on resources and, if the grader runs as root, a user without rights. A completion
  can read files and the environment of the grader's user, and can send signals to that user's
  processes.

In every layer the child is limited in time, memory and output, and cannot start processes or
threads. Landlock and seccomp restrict it too, as far as the kernel supports them.
`Sandbox.describe_isolation` says what is in force.
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
from rapid.grading.bubblewrap_advice import ALLOW_NAMESPACES, INSTALL
from rapid.grading.code.runner import encoding, packages
from rapid.grading.grader import GraderDied
from rapid.grading.memory_cgroups import limit_memory
from rapid.grading.worker import LineReader, LineTooLong, Worker

log = logging.getLogger(__name__)

LAYERS = ("bwrap", "namespaces", "filters")  # strongest first
UNSAFE_LAYER = "limits"

# How a job ended. STOPPED: `receive` (see `Sandbox.run`) returned False.
STOPPED, ENDED, TIMED_OUT = "stopped", "the process ended", "timed out"
FLOODED = "a line of output was too long"

# A command prefix that moves the socket to the grader from standard input to file descriptor 3.
# bubblewrap's processes keep copies of descriptors 0 to 2, and a completion may be able to reach
# those processes.
_WITH_SOCKET = ["/bin/sh", "-c", 'exec "$@" 3<&0 </dev/null', "sh"]
# The same, but the shell remains as the parent of the command and waits for it. Otherwise Linux
# would kill bubblewrap, which has --die-with-parent, when the grader's thread that started it ends.
_WITH_SOCKET_AND_PARENT = ["/bin/sh", "-c", 'exec 3<&0 </dev/null; "$@" & exec 3<&-; wait $!', "sh"]
_RUNNER = Path(__file__).resolve().with_name("runner")
# The Python installation itself, not a virtual environment.
_PYTHON, _PREFIX = os.path.realpath(sys._base_executable), sys.base_prefix

# The trial job that tests a layer before it is used. It must be able to import from Python's
# library, and unable to read files outside of it.
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
    "If Python itself does not start (error while loading shared libraries), use a Python that "
    "needs no LD_LIBRARY_PATH. Otherwise: "
    f"{INSTALL}. {ALLOW_NAMESPACES}. Or use a kernel with Landlock (Linux 5.13) and seccomp. "
    "Without a sandbox: --unsafe-sandbox of rapid grade, grading.unsafe_sandbox in params.yaml"
)


class SandboxError(GraderDied):
    """The sandbox, or one layer of it, does not work on this machine."""


def encode_job(
    code: str, entry_point: str, calls: str, as_sets: bool = False, is_completion: bool = False
) -> bytes:
    """Return a job for `Sandbox.run`.

    Args:
        code: the program, or a completion with a program in it.
        entry_point: name of the function to call.
        calls: JSON text: a list with the encoded arguments of each call (`runner.encoding`).
        as_sets: whether to convert each output, also an iterator, to a set.
        is_completion: whether `code` is a completion in which the program has to be found.
    """
    # Joined as text, so that `calls`, which is long and the same for all completions of a problem,
    # is not encoded again.
    fields = {"code": code, "entry_point": entry_point, "as_sets": as_sets}
    job = json.dumps(fields | {"is_completion": is_completion})
    return f'{job[:-1]}, "calls": {calls}}}'.encode()


class Sandbox:
    """A runner in a layer. A context manager; safe to share between threads, which take turns.

    Args:
        memory_mb: address space of one job in MB (1e6 bytes). Python itself takes about 30 MB.
        layer: one of `LAYERS`; None for the strongest layer that works on this machine.
        guarded: whether the guard in Python (`runner.isolation.install_guard`) is on, which raises
            an exception for forbidden actions.
        filtered: whether the kernel's filters are on, as far as the kernel has them. `guarded` and
            `filtered` are False only in tests that attack the rest of the isolation.
        unsafe: whether to run in `UNSAFE_LAYER`, without isolation, if no layer works.
    """

    def __init__(
        self,
        memory_mb: int = limits.CODE_MB,
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
        self._hello: dict = {}  # the runner's first message: what isolation works here

    def __enter__(self) -> Self:
        """Start the runner. Raise SandboxError if no layer works, or `layer` does not."""
        self._start()
        level = logging.WARNING if self.layer == UNSAFE_LAYER else logging.INFO
        log.log(level, "code sandbox: %s", self.describe_isolation())
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def describe_isolation(self) -> str:
        """Describe what isolates a job from the machine. The sandbox must have been started."""
        file_filter, call_filter = (
            self.filtered and self._hello[name] for name in ("FileFilter", "SystemCallFilter")
        )
        library_only = "no file but Python's library, numpy and pandas"
        enclosed = f"no network, no host process, {library_only} (read-only)"
        user = self._hello["user"]
        readable = "the grader's own files" if user == os.geteuid() else "files that all may read"
        access = [
            library_only if file_filter else f"can read {readable}",
            "no socket, no signal" if call_filter else "can use the network",
        ]
        description = {
            "bwrap": f"bubblewrap: {enclosed}",
            "namespaces": f"Linux namespaces: {enclosed}",
            "filters": f"no namespaces: {library_only}, no socket, no signal",
            "limits": f"NOT ISOLATED (unsafe_sandbox): {', '.join(access)}",
        }
        own_namespaces = self._hello["own_namespaces"]
        separation = f"each job in its own {'process namespace' if own_namespaces else 'session'}"
        user_name = "the grader's user" if user == os.geteuid() else "another user"
        rights = f"as {user_name}, without capabilities"
        resources = f"{self.memory_mb} MB, no child process, no thread, no file written"
        is_on = {"Landlock": file_filter, "seccomp": call_filter, "Python guard": self.guarded}
        switches = ", ".join(f"{name} {'on' if on else 'off'}" for name, on in is_on.items())
        return "; ".join([description[self.layer], separation, rights, resources, switches])

    def run(
        self, job: bytes, timeout: float, receive: Callable[[bytes], bool], line_limit: int
    ) -> str:
        """Run one job. Pass each line that the child sends to `receive`, until it returns False.

        The lines come from hostile code: they may be anything.

        Args:
            job: from `encode_job`.
            timeout: wall-clock seconds, from the start of the child to the last line.
            receive: takes one line without its newline; returns whether to read another one.
            line_limit: maximum bytes of a line; a longer line ends the job.

        Returns:
            How the job ended: STOPPED, ENDED, TIMED_OUT or FLOODED.

        Raises:
            GraderDied: the runner died during the job. SandboxError, a subclass: it had died
                before, and cannot be started again.
        """
        with self._lock:
            if self._runner is None or not self._runner.is_alive:
                self._stop()
                self._start()
            try:
                return self._run(job, timeout, receive, line_limit, self.guarded)
            except BaseException:
                self._stop()  # the runner may be in the middle of the job: start a new one
                raise

    def _run(
        self, job: bytes, timeout: float, receive: Callable, line_limit: int, guarded: bool
    ) -> str:
        """Run one job as `run` does, with or without the guard, but do not take the lock."""
        deadline = time.monotonic() + timeout + limits.CODE_GRACE_SECONDS
        request = encoding.REQUEST.pack(timeout, self.memory_mb * 1_000_000, guarded, self.filtered)
        job_socket, child_end = socket.socketpair()
        ending = TIMED_OUT
        with contextlib.suppress(ConnectionError, TimeoutError), job_socket:
            with child_end:
                socket.send_fds(self._runner.connection, [request], [child_end.fileno()])
            job_socket.settimeout(max(0.001, deadline - time.monotonic()))
            # A child may die before it has read the whole job. Its answers are read nevertheless.
            with contextlib.suppress(ConnectionError):
                job_socket.sendall(encoding.LENGTH.pack(len(job)) + job)
            ending = _read_lines(LineReader(job_socket, line_limit), deadline, receive)
        # The job's socket is closed now, so the runner ends the child and replies with whether the
        # child's time ran out. Its time ends about CODE_GRACE_SECONDS before `deadline`.
        reply = self._runner.ask(b"", limits.CODE_REPLY_SECONDS)
        if len(reply) != encoding.REPLY.size:
            self._stop()
            if ending in (STOPPED, FLOODED):
                return ending  # the child's answers are enough for a verdict
            raise GraderDied("the sandbox's runner died, or does not respond")
        timed_out, _status = encoding.REPLY.unpack(reply)
        return TIMED_OUT if ending == ENDED and timed_out else ending

    def _start(self) -> None:
        """Start a runner in `self.layer`, or in the first layer that works."""
        failures = []
        layers = (*LAYERS, UNSAFE_LAYER) if self.unsafe else LAYERS
        if self.layer not in (None, *layers):
            failures.append(f"{self.layer}: not one of the layers {', '.join(layers)}")
        for layer in layers if self.layer is None else {self.layer}.intersection(layers):
            try:
                self._launch(layer)
                self._test_layer(layer)
            except GraderDied as error:
                self._stop()
                failures.append(f"{layer}: {error}")
            else:
                self.layer = layer  # a later restart must not fall back to a weaker layer
                return
        raise SandboxError(
            f"completions cannot be sandboxed here ({'; '.join(failures)}). {ADVICE}"
        )

    def _launch(self, layer: str) -> None:
        """Start a runner in this layer, or raise SandboxError with the last line it has printed."""
        with tempfile.TemporaryFile() as errors:
            self._runner = Worker(
                limit_memory(_build_command(layer), self.memory_mb + limits.CODE_RUNNER_MB),
                # Hashes are fixed, so sets print in the same order; numpy starts no threads.
                env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"},
                cwd="/",
                stderr=errors,
            )
            try:
                self._hello = json.loads(self._runner.ask(b"", limits.CODE_START_SECONDS))
            except ValueError:  # no JSON: the runner has ended, and the answer is empty
                self._stop()
                errors.seek(0)
                lines = errors.read().decode(errors="replace").strip().splitlines()
                # The last line of a traceback has the error.
                raise SandboxError(lines[-1] if lines else "the runner did not start") from None

    def _test_layer(self, layer: str) -> None:
        """Run the trial job in a layer, without the guard in Python.

        Raise SandboxError if the job fails or can read a file outside of Python's library, or if
        the layer "filters" lacks one of its two filters.
        """
        names = {"FileFilter": "Landlock", "SystemCallFilter": "seccomp"}
        missing = [name for key, name in names.items() if not (self.filtered and self._hello[key])]
        if layer == "filters" and missing:
            raise SandboxError(f"no {' and no '.join(missing)}")
        lines = []
        paths = [__file__, "/etc/passwd", f"/proc/{os.getpid()}/environ"]
        job = encode_job(_TRIAL, "f", json.dumps([[paths]]))
        seconds, line_limit = limits.CODE_START_SECONDS, 10_000
        self._run(job, seconds, lambda line: lines.append(line) or False, line_limit, guarded=False)
        answer = json.loads(lines[0]) if lines else {}
        if "output" not in answer:
            reason = answer.get("reason", "no answer")
            raise SandboxError(
                f"a test program did not run ({reason}): check that user {self._hello['user']} can "
                f"read {_PREFIX}"
            )
        if answer["output"] and layer != UNSAFE_LAYER:
            raise SandboxError(f"a test program could read {', '.join(answer['output'])}")

    def _stop(self) -> None:
        if self._runner is not None:
            self._runner.end()
            self._runner = None


def _read_lines(reader: LineReader, deadline: float, receive: Callable[[bytes], bool]) -> str:
    """Pass lines to `receive` until it returns False, and return how the job ended.

    Raises:
        TimeoutError: the deadline, a time of `time.monotonic`, has passed.
    """
    try:
        while receive(reader.read_line(deadline)):
            pass  # the deadline includes the time that `receive` takes
    except EOFError:
        return ENDED
    except LineTooLong:
        return FLOODED
    return STOPPED


def _build_command(layer: str) -> list[str]:
    """Return the command line that starts a runner in this layer, or raise SandboxError."""
    paths = _list_readable_paths()
    hidden, importable = _find_package_folders(paths), _find_importable_packages()
    settings = {"layer": layer, "paths": paths, "hidden": hidden, "importable": importable}
    settings["resources"] = limits.CODE_RESOURCES
    # -S, -s, -P: no installed packages and no modules from the working directory. -B: no bytecode.
    runner = [_PYTHON, "-S", "-s", "-P", "-B", str(_RUNNER), json.dumps(settings)]
    if layer != "bwrap":
        return [*_WITH_SOCKET, *runner]
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxError("bwrap is not on PATH")
    command = [bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    command += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    # The runner needs these capabilities to put each child into namespaces of its own and to change
    # its user. A child drops them all.
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
    # These come after the folders in `hidden`, in which they may lie.
    command += _bind_paths([*importable, runner_folder])
    for path in (*hidden, "/"):
        command += ["--remount-ro", path]
    return [*_WITH_SOCKET_AND_PARENT, *command, "--chdir", "/", *runner]


def _bind_paths(paths: list[str]) -> list[str]:
    """Return bubblewrap's arguments that make these paths readable in the sandbox."""
    # The parent folders are made explicitly: bubblewrap would make them readable by their owner
    # only.
    parents = {str(folder) for path in paths for folder in Path(path).parents} - {"/"}
    dirs = [word for folder in sorted(parents) for word in ("--perms", "0755", "--dir", folder)]
    return dirs + [word for path in paths for word in ("--ro-bind", path, path)]


def _list_readable_paths() -> list[str]:
    """Return the paths that a runner needs: Python, its library, C libraries, and last `runner`."""
    candidates = [
        _PYTHON,
        f"{_PREFIX}/lib",
        *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache"),
        str(_RUNNER),
    ]
    return [path for path in dict.fromkeys(candidates) if os.path.exists(path)]


def _find_package_folders(paths: list[str]) -> list[str]:
    """Return the folders of installed packages below these paths.

    They are hidden from completions, because this project, with its problems, may be installed
    there. The packages of `_find_importable_packages` are not hidden.
    """
    return [
        str(folder)
        for path in paths
        if os.path.isdir(path)
        for folder in sorted(Path(path).glob("python*/*-packages"))
    ]


def _find_importable_packages() -> list[str]:
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
