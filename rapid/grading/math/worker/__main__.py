"""Compares mathematical answers for the grader: one JSON line in, one word out.

    python worker MEMORY_BYTES

Standard input is a socket, to which it answers. An empty line is answered "ready", and what it has
kept from earlier answers is forgotten.

Processes of their own, because sympy can take forever on a short answer and only a signal ends it:
this one, which keeps its imports warm, and a child of it that compares. In: {"gold", "answer",
"question", "timeout"}, the last in seconds. Out: the reason, "infrastructure" where somebody killed
the child. When the time is up an alarm kills the child, whatever it is doing and whether or not
anybody still waits for it.
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

WARMING = [("\\frac12", "0.5"), ("1+\\sqrt2", "2-e^x"), ("x^2-1", "(x-1)(x+1)"), ("y=x", "y=2x")]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
ACTIONS = ("os.", "subprocess.", "shutil.", "socket.", "ctypes.", "signal.")
IMPORTING = ("os.listdir", "os.scandir")


def main() -> None:
    memory = int(sys.argv[1])
    for gold, answer in WARMING:  # builds tables: no answer's time should pay for it
        compare(gold, answer, "Simplify $x^2-1$.")
    child = None
    with contextlib.suppress(ConnectionError), socket.socket(fileno=0) as connection:
        for line in connection.makefile():
            if line == "\n":  # a grader begins
                child = child and child.end() and None
                connection.sendall(b"ready")
                continue
            # Unasked, it can only have ended.
            if child and select.select([child.link], [], [], 0)[0]:
                child = child.end() and None
            child = child or Child(connection, memory)
            reason = child.ask(line, connection)
            if not reason:
                reason, child = child.end(), None
            connection.sendall(reason.encode())
            if child and reason == "memory":  # its caches have taken it: the next one has its own
                child = child.end() and None
    if child:
        child.end()


class Child:
    """Compares until a question kills it. Its successor starts at once, with nothing to import."""

    def __init__(self, connection: socket.socket, memory: int):
        self.link, far_end = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(connection.fileno())  # it speaks through us alone
            self.link.close()
            shed_rights(memory)
            serve_questions(far_end)
            os._exit(0)
        far_end.close()

    def ask(self, line: str, connection: socket.socket) -> str:
        """Return the reason; "" when the child ended, also because nobody waits any longer."""
        with contextlib.suppress(ConnectionError):
            self.link.sendall(line.encode())
            watch = select.poll()
            watch.register(self.link, select.POLLIN)
            watch.register(connection, 0)
            if connection.fileno() not in dict(watch.poll()):
                return self.link.recv(64).decode()
            os.kill(self.pid, signal.SIGKILL)
        return ""

    def end(self) -> str:
        """Wait for the child, which ends with its link. Return why it did not answer."""
        self.link.close()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if status in (-signal.SIGKILL, -signal.SIGTERM):  # no answer can do that
            return "infrastructure"
        return "timeout" if status == -signal.SIGALRM else "crashed"


def serve_questions(link: socket.socket) -> None:
    for line in link.makefile():
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request.pop("timeout"))
        reason = compare(**request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        link.sendall(reason.encode())


def shed_rights(memory: int) -> None:
    """Give up what comparing does not need, in case an answer is ever run, which none is."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it would be inherited, if ignored
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    with contextlib.suppress(ValueError):  # whoever started this allows less
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    for nothing in (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE):
        resource.setrlimit(nothing, (0, 0))

    def refuse(event: str, args: tuple) -> None:
        acts = event.startswith(ACTIONS) and event not in IMPORTING
        if acts or (event == "open" and args[2] & WRITES):
            raise PermissionError(event)

    sys.addaudithook(refuse)


if __name__ == "__main__":
    main()
    os._exit(0)  # the grader waits: taking sympy down tidily takes a tenth of a second
