"""Isolates the runner from the machine, and each completion from the runner and other completions.

1. If its layer is "namespaces" (`rapid.grading.code.sandbox` lists the layers), the runner isolates
   itself at its start: it enters namespaces that have no network, no processes of the host, and no
   files but those of Python, read-only (`enter_namespaces`). In the layer "bwrap", bubblewrap has
   started it in such namespaces. In the other layers there are none.
2. Each completion runs in a child: in a process and IPC namespace of its own if the kernel allows
   that (`NamespaceForker`), as a user without rights (`drop_rights`), with limits
   (`limit_resources`) and filters in the kernel (`filters`).
3. The last step is a guard in Python (`install_guard`). A determined attacker can get around the
   guard, so nothing depends on it. It gives forbidden actions a verdict of their own, and stops
   completions from doing damage by mistake where the other isolation is missing.
"""

import ctypes
import os
import random
import resource
import signal
import sys

from libc import call_libc, succeeds_in_child

# From linux/sched.h, sys/mount.h, linux/mount.h, linux/prctl.h and linux/capability.h.
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x1000_0000, 0x2000_0000, 0x4000_0000
NAMESPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x1000, 0x4000, 0x4_0000, 2
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, AT_RECURSIVE = 1, 2, 4, 0x8000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
CAPABILITY_VERSION_3 = 0x2008_0522
SYS_PIDFD_OPEN, SYS_MOUNT_SETATTR = 434, 442  # the same numbers on every architecture
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}


def enter_namespaces(paths: list[str], hidden: list[str], importable: list[str]) -> None:
    """Move into new namespaces in which only `paths` and `importable` exist, read-only.

    This function returns in a new process, the first of its process namespace. The old process
    waits for the new one, and ends when it ends.

    Args:
        paths: files and folders. The last one is the folder of the runner.
        hidden: folders that are empty in the new namespaces, except for packages in `importable`
            and the runner's folder, which may lie in them.
        importable: paths of the packages that completions may import.

    Raises:
        OSError: the kernel does not allow it. The caller must then end the process, which may be in
            some of the namespaces already.
    """
    if os.geteuid() == 0:
        call_libc("unshare", NAMESPACES)
    else:
        user, group = os.geteuid(), os.getegid()
        call_libc("unshare", NAMESPACES | CLONE_NEWUSER)
        # The user keeps its ids inside. The kernel requires setgroups to be denied before gid_map.
        maps = {"uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for name, text in ({"setgroups": "deny"} | maps).items():
            with open(f"/proc/self/{name}", "w") as stream:
                stream.write(text)
    _replace_root(paths, hidden, importable)
    _enter_process_namespace()


def _replace_root(paths: list[str], hidden: list[str], importable: list[str]) -> None:
    """Replace the root file system by a read-only one, as described in `enter_namespaces`."""
    # The new root is built in a folder that exists on every machine and contains none of the paths.
    stage = "/proc"
    # Private, so that mounts in this namespace do not appear in the host's.
    call_libc("mount", None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
    _mount_empty(stage)
    *library, runner = paths
    for path in library:
        _bind_path(path, stage)
    for path in hidden:
        _mount_empty(stage + path)
    for path in (*importable, runner):
        _bind_path(path, stage)
    os.chdir(stage)
    # pivot_root(2) with the same folder twice mounts the old root on top of the new one. Then the
    # old root is unmounted.
    call_libc("syscall", SYS_PIVOT_ROOT[os.uname().machine], b".", b".")
    call_libc("umount2", b".", MNT_DETACH)
    os.chdir("/")
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
    size = ctypes.sizeof(attributes)
    call_libc("syscall", SYS_MOUNT_SETATTR, -1, b"/", AT_RECURSIVE, ctypes.byref(attributes), size)


def _bind_path(path: str, stage: str) -> None:
    """Mount a path of the old root at the same place in the new root, which is built at `stage`."""
    source, target = os.path.realpath(path), stage + path
    if os.path.isdir(source):
        os.makedirs(target, mode=0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    flags = ctypes.c_ulong(MS_BIND | MS_REC)
    call_libc("mount", source.encode(), target.encode(), None, flags, None)


def _mount_empty(folder: str) -> None:
    """Mount an empty file system in memory on a folder."""
    options = b"size=1m,mode=755"
    call_libc("mount", b"tmpfs", folder.encode(), b"tmpfs", ctypes.c_ulong(0), options)


def _enter_process_namespace() -> None:
    """Return in a new process, the first of the process namespace that `unshare` has prepared."""
    inner = os.fork()
    if inner == 0:
        call_libc("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    os.closerange(3, 256)  # the control socket must close when the inner process ends
    _, status = os.waitpid(inner, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


class NamespaceForker:
    """Forks children. If `works`, each child has a process and IPC namespace of its own.

    `works` is whether the kernel allows that. Otherwise children are forked as usual.
    """

    FLAGS = CLONE_NEWPID | CLONE_NEWIPC

    def __init__(self) -> None:
        self.works = succeeds_in_child(self._try_round_trip)
        self._own_pidfd = _open_own_pidfd() if self.works else -1

    def fork(self) -> int:
        """Fork as `os.fork` does.

        The child is the first process of its namespace, so the kernel ends the other processes of
        the namespace when the child ends.
        """
        if not self.works:
            return os.fork()
        call_libc("unshare", self.FLAGS)
        child = os.fork()
        if child:
            call_libc("setns", self._own_pidfd, self.FLAGS)  # back, as the next `unshare` requires
        return child

    def _try_round_trip(self) -> None:
        """Go to new namespaces and back, as `fork` does."""
        own_pidfd = _open_own_pidfd()
        call_libc("unshare", self.FLAGS)
        call_libc("setns", own_pidfd, self.FLAGS)


def _open_own_pidfd() -> int:
    """Return a file descriptor of this process; some builds of Python have no `os.pidfd_open`."""
    return call_libc("syscall", SYS_PIDFD_OPEN, os.getpid(), 0)


def find_unused_user() -> int | None:
    """Return the id of a user that owns nothing; None if this process may not change its user.

    Each runner draws its own id, because the kernel's limit on processes is per user.
    """
    if os.geteuid() != 0:
        return None
    # 65534 is the id of the user "nobody". It is for user namespaces that do not map large ids.
    for user in (random.SystemRandom().randrange(2_000_000_000, 2_100_000_000), 65534):
        if succeeds_in_child(lambda user=user: drop_rights(user)):
            return user
    return None


def can_read(folder: str, user: int | None) -> bool:
    """Return whether a completion that runs as `user` can list a folder."""
    return succeeds_in_child(lambda: [drop_rights(user), os.listdir(folder)])


def drop_rights(user: int | None) -> None:
    """Become `user` (unless None) and give up all capabilities for good, or raise OSError."""
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    no_capabilities = (ctypes.c_uint32 * 6)()  # the effective, permitted and inheritable sets
    call_libc("capset", ctypes.byref(header), ctypes.byref(no_capabilities))
    call_libc("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call_libc("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)  # after setuid, which clears it


def limit_resources(resources: dict[str, int]) -> None:
    """Set resource limits of this process for good, by the names of RLIMITs, such as "AS"."""
    for name, value in resources.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard_limit = resource.getrlimit(kind)  # this process cannot raise it
        limit = value if hard_limit == resource.RLIM_INFINITY else min(value, hard_limit)
        resource.setrlimit(kind, (limit, limit))


class Forbidden(PermissionError):
    """The guard has stopped a forbidden action."""


def install_guard(importable: list[str]) -> None:
    """From now on raise `Forbidden` when Python code uses the operating system.

    The guard is an audit hook (PEP 578). It allows files of Python's library and of the packages in
    `importable` to be read, for imports.
    """
    library = tuple(os.path.abspath(path) + os.sep for path in (*sys.path, *importable) if path)
    forbidden = {"os", "socket", "subprocess", "ctypes", "shutil", "signal", "pty", "mmap"}
    forbidden |= {"_posixsubprocess", "fcntl", "resource", "syslog", "tempfile"}
    forbidden |= {"urllib", "webbrowser"}

    def in_library(path: object) -> bool:
        return isinstance(path, str) and (os.path.normpath(path) + os.sep).startswith(library)

    def hook(event: str, arguments: tuple) -> None:
        if event == "open":
            path, mode, flags = arguments
            reads = mode in ("r", "rb", "rt") or (mode is None and flags & os.O_ACCMODE == 0)
            allowed = reads and in_library(path)
        elif event in ("os.listdir", "os.scandir"):
            allowed = in_library(arguments[0])
        else:
            allowed = event.partition(".")[0] not in forbidden
        if not allowed:
            raise Forbidden(f"a completion may not do this: {event}")

    sys.addaudithook(hook)
