"""Filters in the kernel that refuse what a completion must not do. They need no privileges.

- `SystemCallFilter` (seccomp) allows the system calls that Python needs to compute, and refuses all
  others, such as those for processes, signals, sockets, shared memory, resource limits, mounts, and
  for opening files to write.
- `FileFilter` (Landlock) refuses all access to files, except for reading those of Python and of the
  packages that completions may import.

`rapid.grading.code.sandbox` lists the ways to isolate completions, called layers. The layers
"bwrap" (bubblewrap) and "namespaces" use namespaces of the kernel, and these filters are a second
line of defence. In the layer "filters" nothing else isolates a completion, which may run as the
grader's own user. seccomp refuses what Landlock does not cover: signals, tracing, sockets, changing
a file's size.
"""

import ctypes
import os
import struct
from typing import Self

import bpf
from libc import call_libc, succeeds_in_child

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC  # flags of openat that are refused

OPENAT = (257, 56)  # numbers of openat on x86_64 and aarch64; allowed for reading only

# All other allowed calls. After the name of a group come its calls, each with its number on x86_64
# and its number on aarch64 ("-" if aarch64 has no such call).
_ALLOWED = """
memory              brk 12 214, mmap 9 222, munmap 11 215, mremap 25 216, mprotect 10 226,
                    madvise 28 233, futex 202 98,
open files          read 0 63, pread64 17 67, write 1 64, close 3 57, close_range 436 436,
                    lseek 8 62, fstat 5 80, getdents64 217 61, recvfrom 45 207,
names of files      newfstatat 262 79, statx 332 291, faccessat 269 48, readlinkat 267 78,
                    getcwd 79 17, stat 4 -, lstat 6 -, access 21 -, readlink 89 -,
time and randomness clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115,
                    nanosleep 35 101, gettimeofday 96 169, time 201 -, times 100 153,
                    getrandom 318 278,
this process        getpid 39 172, getppid 110 173, gettid 186 178, getuid 102 174,
                    geteuid 107 175, getgid 104 176, getegid 108 177, uname 63 160,
                    getrusage 98 165, sched_getaffinity 204 123, sched_yield 24 124,
signals and end     rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139,
                    sigaltstack 131 132, restart_syscall 219 128, exit 60 93, exit_group 231 94
"""
ALLOWED = [entry.split()[-3:] for entry in _ALLOWED.split(",")]


class SystemCallFilter:
    """A seccomp filter. `works` is whether this kernel and processor support it."""

    def __init__(self) -> None:
        machine = os.uname().machine
        self._program = assemble_filter(machine) if machine in bpf.MACHINES else b""
        self.works = bool(self._program) and succeeds_in_child(self.restrict)

    def restrict(self) -> None:
        """Put the filter on this process for good. Raise OSError if that is not permitted."""
        install_filter(self._program)


def install_filter(program: bytes) -> None:
    """Put a filter on this process and the processes that it starts, or raise OSError."""
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, which have 8 bytes each, and their address.
    header = struct.pack("HP", len(program) // 8, ctypes.addressof(code))
    call_libc("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call_libc("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0)


def assemble_filter(machine: str) -> bytes:
    """Return the filter for a completion on this kind of machine (`os.uname().machine`)."""
    column = bpf.MACHINES[machine][1]  # of the numbers of calls: 0 on x86_64, 1 on aarch64
    steps = bpf.begin_filter(machine)
    for _, *numbers in ALLOWED:
        if numbers[column] != "-":
            steps += bpf.branch(bpf.IF_EQUAL, int(numbers[column]), bpf.ALLOW)
    # Argument 2 of openat has the flags.
    reading = bpf.branch_on_argument(2, bpf.IF_ANY_BIT, WRITE_FLAGS, bpf.refuse()) + bpf.ALLOW
    return bpf.assemble(steps + bpf.branch(bpf.IF_EQUAL, OPENAT[column], reading) + bpf.refuse())


# From linux/landlock.h. The numbers of its calls are the same on every architecture.
SYS_CREATE_RULESET, SYS_ADD_RULE, SYS_RESTRICT_SELF = 444, 445, 446
CREATE_RULESET_VERSION, RULE_PATH_BENEATH, READ_FILE, READ_DIR = 1, 1, 1 << 2, 1 << 3
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # number of access rights by version; 16 since version 5


class FileFilter:
    """A Landlock ruleset. The runner makes it once; each child that runs a completion adopts it.

    `works` is whether this kernel supports it.
    """

    def __init__(self, paths: list[str], hidden: list[str]) -> None:
        self._ruleset = -1
        # The ruleset is tried in a child process, because a process cannot take it off again. If it
        # works, it is made again in this process.
        self.works = succeeds_in_child(lambda: self._make_ruleset(paths, hidden).restrict())
        if self.works:
            self._make_ruleset(paths, hidden)

    def _make_ruleset(self, paths: list[str], hidden: list[str]) -> Self:
        """Make the ruleset, which refuses every access except for reading these paths."""
        version = call_libc("syscall", SYS_CREATE_RULESET, None, 0, CREATE_RULESET_VERSION)
        # One bit for each access right of this version of Landlock; all are refused by default.
        handled = struct.pack("Q", (1 << RIGHTS.get(version, 16)) - 1)
        self._ruleset = call_libc("syscall", SYS_CREATE_RULESET, handled, len(handled), 0)
        for path in paths:
            self._allow_path(path, hidden)
        return self

    def _allow_path(self, path: str, hidden: list[str]) -> None:
        """Add rules to read everything at and below `path`, except for hidden folders.

        In a folder that contains a hidden one, all names can be listed.
        """
        if path in hidden:
            return
        contains_hidden = any(hidden_path.startswith(path + os.sep) for hidden_path in hidden)
        if not os.path.isdir(path):
            rights = READ_FILE
        else:
            rights = READ_DIR if contains_hidden else READ_FILE | READ_DIR
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", rights, beneath)
        call_libc("syscall", SYS_ADD_RULE, self._ruleset, RULE_PATH_BENEATH, rule, 0)
        os.close(beneath)
        if contains_hidden:
            for entry in os.scandir(path):
                if not entry.is_symlink():  # the target has its own rule, or must not be readable
                    self._allow_path(entry.path, hidden)

    def restrict(self) -> None:
        """Put the ruleset on this process for good. Raise OSError if that is not permitted."""
        call_libc("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        call_libc("syscall", SYS_RESTRICT_SELF, self._ruleset, 0)
