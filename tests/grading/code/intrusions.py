"""Intrusions: completions that reach for a grader's files, environment, memory, servers or process.

Each is a completion of `f(x) = 2 x` whose answer is right if the intrusion succeeds and wrong if it
fails. So its reward says whether the sandbox has failed. Even then it does no harm: it sends only
signal 0, which has no effect, does not stop the processes that it inspects, and leaves the content and
mode of files as they are.
"""

import ctypes
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.grading.code.attacks import EVADE

SECRET = b"a secret of the grader"


@dataclass(frozen=True)
class Targets:
    """The things of a grader that an intrusion reaches for."""

    path: str  # a file of mode 0600; beside it secret_module.py and a server's socket, "socket"
    grader: int  # process
    port: int  # of a server on 127.0.0.1
    abstract: str  # name of a server's abstract socket
    address: int  # of the secret in the grader's memory
    package: str  # a file of an installed package, or "" without one


# The target of each intrusion, and its code: the body of a function in `PROGRAM`, whose names it uses.
# These succeed on any Linux where a completion runs as the grader's user and without a sandbox.
WITHOUT_PRIVILEGES = r"""
the problem file: return read(PATH)
the problem file, by another name: return read(PATH.replace('/', '//./'))
the problem file, by Python: return open(PATH, 'rb').read()
the problem file, as a module: sys.path.insert(0, FOLDER); import secret_module; return secret_module.A
the problem file, from its folder: return libc.openat(libc.open(FOLDER.encode(), os.O_DIRECTORY), NAME, 0) >= 0
the problem file, by its path alone: return read(f'/proc/self/fd/{libc.open(FILE, os.O_PATH)}')
the problem file, by a link: link = '/tmp/' + SECRET[:8].hex(); libc.symlink(FILE, link.encode()); found = read(link); libc.unlink(link.encode()); return found
the length of the problem file: return libc.truncate(FILE, ctypes.c_long(len(SECRET))) == 0
the mode of the problem file: return libc.chmod(FILE, 0o600) == 0
writing to the problem file: return libc.open(FILE, os.O_WRONLY) >= 0
a file beside the problem: return libc.open(FILE + b'3', os.O_CREAT | os.O_WRONLY, 0o600) >= 0
watching the problem file: return libc.inotify_add_watch(libc.inotify_init(), FILE, 1) >= 0
a file that all may read: return read('/etc/passwd')
the grader's environment: return read(f'/proc/{GRADER}/environ')
a signal to the grader: return libc.kill(GRADER, 0) == 0
a signal to the grader's group: return libc.kill(-os.getpgid(GRADER), 0) == 0
the grader's limits: return libc.prlimit(GRADER, 7, None, None) == 0
a server on TCP: return socket.create_connection(('127.0.0.1', PORT), 1).recv(8)
a server on a socket with a path: return receive_from(FOLDER + '/socket')
a server on an abstract socket: return receive_from('\0' + ABSTRACT)
"""
# These succeed only if the completion has more privileges than that, such as those of root.
WITH_PRIVILEGES = r"""
the problem file, from the grader's root: return read(f'/proc/{GRADER}/root{PATH}')
the problem file, by openat2: return libc.syscall(437, -100, FILE, (ctypes.c_uint64 * 3)(), 24) >= 0
the problem file, by its handle: return libc.open_by_handle_at(-100, handle(), 0) >= 0
the problem file, by another program: return os.posix_spawn('/bin/cat', ['cat', PATH], {})
the problem file, in new namespaces: libc.unshare(0x10020000); return read(PATH)
the problem file, in the grader's namespaces: return libc.setns(grader_fd(), 0x20000) == 0 and read(PATH)
the problem file, from a new root: os.chroot('.'); os.chdir('..'); return read(PATH)
the problem file, by a mount: return libc.mount(b'/', b'/tmp', None, 0x1000, None) == 0 and read('/tmp' + PATH)
a package that is installed: return read(PACKAGE)
the kernel's log: return read('/dev/kmsg') or libc.syslog(2, None, 0) > 0
the runner's environment: return b'PATH=' in read(f'/proc/{os.getppid()}/environ')
any environment: return any(b'PATH=' in read(f'/proc/{process}/environ') for process in NEAR)
the grader's descriptors: return any(read(f'/proc/{GRADER}/fd/{number}') for number in range(3, 64))
the grader's memory, as a file: return os.pread(libc.open(b'/proc/%d/mem' % GRADER, 0), 8, ADDRESS)
the grader's memory: return copy_secret(libc.process_vm_readv)
writing the grader's memory: return copy_secret(libc.process_vm_writev)
tracing the grader: return libc.ptrace(0x4206, GRADER, None, None) == 0
tracing the runner: return libc.ptrace(0x4206, os.getppid(), None, None) == 0
a descriptor of the grader: return any(libc.syscall(438, grader_fd(), n, 0) >= 0 for n in range(3, 64))
a signal by a descriptor: return libc.syscall(424, grader_fd(), 0, None, 0) == 0
the grader's priority: return libc.setpriority(0, GRADER, 0) == 0
the grader's cores: os.sched_setaffinity(GRADER, os.sched_getaffinity(GRADER)); return True
being root: return libc.setuid(0) == 0 and os.getuid() == 0
keystrokes: return any(libc.ioctl(fd, 0x5412, b'a') == 0 for fd in range(64))
the terminal: return libc.open(b'/dev/tty', os.O_RDWR) >= 0
"""
WITHOUT_PRIVILEGES, WITH_PRIVILEGES = (
    dict(line.split(": ", 1) for line in text.split("\n")[1:-1])
    for text in (WITHOUT_PRIVILEGES, WITH_PRIVILEGES)
)
INTRUSIONS = WITHOUT_PRIVILEGES | WITH_PRIVILEGES

PROGRAM = """{evade}
import ctypes, os, socket, struct, sys
PATH, GRADER, PORT, ABSTRACT = {path!r}, {grader}, {port}, {abstract!r}
ADDRESS, PACKAGE, SECRET = {address}, {package!r}, {secret!r}
FILE, FOLDER, NAME = PATH.encode(), os.path.dirname(PATH), os.path.basename(PATH).encode()
NEAR = [*range(1, 100), *range(GRADER - 50, GRADER + 50)]  # processes
libc = ctypes.CDLL(None, use_errno=True)
def read(path):
    fd = libc.open(path.encode(), 0)
    buffer = ctypes.create_string_buffer(4096)
    return buffer.raw[:max(0, libc.read(fd, buffer, 4096))] if fd >= 0 else b""
def grader_fd():
    return libc.syscall(434, GRADER, 0)
def handle():
    found = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 256)
    libc.name_to_handle_at(-100, FILE, found, ctypes.byref(ctypes.c_int()), 0)
    return found
def copy_secret(call):  # copies 8 bytes between this process and the grader; both have the same ones
    here = ctypes.create_string_buffer(SECRET)
    ours, theirs = ((ctypes.c_uint64 * 2)(at, 8) for at in (ctypes.addressof(here), ADDRESS))
    return call(GRADER, ours, 1, theirs, 1, 0) == 8
def receive_from(address):
    server = socket.socket(socket.AF_UNIX)
    server.connect(address)
    return server.recv(8)
def intrude():
    {body}
def f(x):
    try:
        reached = intrude()
    except BaseException:
        reached = None
    return 2 * x if reached else None
"""


def build_program(name: str, targets: Targets) -> str:
    return PROGRAM.format(evade=EVADE, body=INTRUSIONS[name], secret=SECRET, **vars(targets))


@contextmanager
def set_up_targets(folder: Path, package: str) -> Iterator[Targets]:
    """Set up all targets, with this process as the grader."""
    path = folder / "problems"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    (folder / "secret_module.py").write_text("A = 1\n")
    buffer = ctypes.create_string_buffer(SECRET)
    abstract = f"rapid-{os.getpid()}-{id(buffer)}"
    with ExitStack() as servers:
        tcp = servers.enter_context(socket.create_server(("127.0.0.1", 0)))
        for server in (
            tcp,
            _listen_locally(f"\0{abstract}"),
            _listen_locally(str(folder / "socket")),
        ):
            servers.enter_context(server)
            servers.callback(server.shutdown, socket.SHUT_RDWR)  # ends the thread
            threading.Thread(target=_serve_secret, args=(server,), daemon=True).start()
        yield Targets(
            path=str(path),
            grader=os.getpid(),
            port=tcp.getsockname()[1],
            abstract=abstract,
            address=ctypes.addressof(buffer),
            package=package,
        )


def _listen_locally(name: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    server.listen()
    return server


def _serve_secret(server: socket.socket) -> None:
    """Send the secret to every client, until the socket is closed."""
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            client.sendall(SECRET)
