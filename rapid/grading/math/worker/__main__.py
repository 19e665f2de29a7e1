"""The math grader's worker: a process that compares mathematical answers.

    python worker MEMORY_BYTES

Standard input is a socket, on which the worker also sends its replies. A request is a line of JSON:
{"gold", "answer", "question", "timeout"}, which are the known answer, the answer that is compared
with it, the text of the problem, and the time limit in seconds. The reply is one word, the reason
of the verdict, which is "infrastructure" if the process that compares was killed from outside. A
grader first sends an empty line. The worker then clears the caches of earlier answers, and replies
"ready".

sympy can take forever on a short answer, and only a signal can stop it. So there are two processes:
this one, which has imported sympy, and a child that it forks to compare. MEMORY_BYTES limits the
child's address space. When the time is up, an alarm kills the child, even if the grader has ended.
"""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys

from compare import compare

# Pairs (known answer, answer) that are compared at the start. This fills tables in lark and sympy,
# which the children inherit; otherwise the first comparisons would take longer.
WARM_UP_PAIRS = [
    ("\\frac12", "0.5"),
    ("1+\\sqrt2", "2-e^x"),
    ("x^2-1", "(x-1)(x+1)"),
    ("y=x", "y=2x"),
]
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# Prefixes of the audit events (PEP 578) that the child refuses, and the events with these prefixes
# that it allows, because imports need them.
REFUSED_EVENTS = ("os.", "subprocess.", "shutil.", "socket.", "ctypes.", "signal.")
IMPORT_EVENTS = ("os.listdir", "os.scandir")


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, `os.waitpid` raises an error
    memory = int(sys.argv[1])
    for gold, answer in WARM_UP_PAIRS:
        compare(gold, answer, "Simplify $x^2-1$.")
    child = None
    with contextlib.suppress(ConnectionError), socket.socket(fileno=0) as connection:
        for line in connection.makefile():
            is_new_grader = line == "\n"
            # Between requests the child sends nothing, so if its link is readable, it has ended.
            if child and (is_new_grader or select.select([child.link], [], [], 0)[0]):
                child.end()
                child = None
            if is_new_grader:
                connection.sendall(b"ready")
                continue
            is_new = child is None
            child = child or Child(connection, memory)
            reason = child.ask(line, connection)
            # The caches of earlier answers may have filled the child's memory. A new child, which
            # starts with empty caches, decides.
            if reason == "memory" and not is_new:
                child.end()
                child = Child(connection, memory)
                reason = child.ask(line, connection)
            if reason in ("", "memory"):  # the child has ended, or has filled its memory
                reason_of_end, child = child.end(), None
                reason = reason or reason_of_end
            connection.sendall(reason.encode())
    if child:
        child.end()


class Child:
    """A forked process that compares answers. If it dies, the worker forks another one.

    Forking is fast, because the worker has imported sympy already.

    Args:
        connection: the worker's socket to the grader, which the child closes.
        memory: the child's address space in bytes.

    Attributes:
        link: the worker's socket to the child.
    """

    def __init__(self, connection: socket.socket, memory: int):
        self.link, child_link = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(connection.fileno())  # the child replies through the worker
            self.link.close()
            drop_rights(memory)
            serve_requests(child_link)
            os._exit(0)
        child_link.close()

    def ask(self, line: str, connection: socket.socket) -> str:
        """Send a request to the child and return its reply.

        Returns "" if the child has ended. The child is killed if the grader closes `connection`.
        """
        with contextlib.suppress(ConnectionError):
            self.link.sendall(line.encode())
            watch = select.poll()
            watch.register(self.link, select.POLLIN)
            watch.register(connection, 0)  # POLLHUP only: the grader is gone
            if connection.fileno() not in dict(watch.poll()):
                return self.link.recv(64).decode()
            os.kill(self.pid, signal.SIGKILL)
        return ""

    def end(self) -> str:
        """Close the link and wait for the child to end.

        Returns:
            The reason of the verdict, for the case that the child has not replied.
        """
        self.link.close()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        # Signals from outside: no answer can cause them.
        if status in (-signal.SIGKILL, -signal.SIGTERM):
            return "infrastructure"
        # SIGALRM is the alarm of `serve_requests`. Anything else is a crash.
        return "timeout" if status == -signal.SIGALRM else "crashed"


def serve_requests(link: socket.socket) -> None:
    """Reply to requests until the link is closed. SIGALRM kills this process if time runs out."""
    for line in link.makefile():
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request.pop("timeout"))
        reason = compare(**request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        link.sendall(reason.encode())


def drop_rights(memory: int) -> None:
    """Take from this process all rights that comparing does not need.

    No answer is ever run as code. This is a precaution, in case a bug makes that possible.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the parent may have ignored it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    with contextlib.suppress(ValueError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE):
        resource.setrlimit(limit, (0, 0))

    def refuse(event: str, args: tuple) -> None:
        # The arguments of the event "open" are path, mode and flags.
        is_refused = event.startswith(REFUSED_EVENTS) and event not in IMPORT_EVENTS
        if is_refused or (event == "open" and args[2] & WRITE_FLAGS):
            raise PermissionError(event)

    sys.addaudithook(refuse)


if __name__ == "__main__":
    main()
    os._exit(0)  # a normal exit with sympy takes a tenth of a second, for which the grader waits
