"""Hostile completions of the problem `f(x) = 2 x`, and the reasons that each may get.

They do no harm even if the sandbox fails: they send other processes only signal 0, which has no
effect, and the files that they write are named `FILE_LEFT_BEHIND`.
"""

from rapid.grading.verdicts import (
    CRASHED,
    FORBIDDEN,
    MEMORY,
    NO_ANSWER,
    PASSED,
    TIMEOUT,
    UNPARSABLE,
    WRONG_ANSWER,
)

FILE_LEFT_BEHIND = "left-by-a-completion"
RIGHT = "def f(x): return 2 * x"

# Switches off the guard (the runner's audit hook in Python), so that only the kernel stops the code that
# follows.
EVADE = """
import gc
for found in gc.get_objects():
    if type(found) is set and "_posixsubprocess" in found:
        found.clear()
"""


def forge_line(line: bytes) -> str:
    """Return a program that writes a line to every file descriptor instead of answering."""
    return f"""
import os
for fd in range(64):
    try:
        os.write(fd, {line!r})
    except OSError:
        pass
def f(x): os._exit(0)
"""


def evade_guard(action: str) -> str:
    """Return a program that evades the guard, tries an action, and gives a wrong answer if that worked."""
    return f"{EVADE}\nimport ctypes, os, signal, socket, subprocess\ndef f(x):\n    {action}\n"


def nest_lists(innermost: str) -> str:
    """Return a program that answers with a value within 100,000 lists."""
    return f"def f(x):\n    a = {innermost}\n    for _ in range(100_000): a = [a]\n    return a"


TIME = {
    "an endless loop": ("def f(x):\n    while True: pass", {TIMEOUT}),
    "an endless loop at import": ("while True: pass", {TIMEOUT}),
    "sleep": ("import time\ndef f(x): time.sleep(60)", {TIMEOUT}),
    "arithmetic in C": ("def f(x): return 3 ** 10 ** 9", {TIMEOUT}),
    "catching everything": (
        "def f(x):\n    while True:\n        try: f(x)\n        except BaseException: pass",
        {TIMEOUT},
    ),
    "ignored signals": (
        "import signal\n"
        "for each in signal.valid_signals() - {9, 19}:\n"
        "    try: signal.signal(each, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "while True: pass",
        {TIMEOUT},
    ),
    "output to stdout": ("while True: print('x' * 1000)", {TIMEOUT}),
    "output to stderr": ("import os\nwhile True: os.write(2, b'x' * 1000)", {TIMEOUT, CRASHED}),
    "a finaliser": ("class A:\n def __del__(self):\n  while True: pass\ndef f(x): A()", {TIMEOUT}),
    "an endless iterable": (
        "import itertools\n"
        "class A(list):\n    def __iter__(self): return itertools.repeat(0)\n"
        "def f(x): return A()",
        {TIMEOUT, MEMORY},
    ),
}

MEMORY_AND_DEPTH = {
    "memory, bit by bit": ("a = []\nwhile True: a.append('x' * 10**7)", {MEMORY, TIMEOUT}),
    "memory, at once": ("def f(x): return bytearray(10**11)", {MEMORY}),
    "memory without objects": (
        evade_guard("a = [ctypes.create_string_buffer(10**8) for _ in range(1000)]"),
        {MEMORY, TIMEOUT, CRASHED},
    ),
    "recursion": ("def f(x): return f(x)", {CRASHED}),
    "recursion without its limit": (
        "import sys\nsys.setrecursionlimit(10**9)\nf = lambda x: f(x)",
        {CRASHED, MEMORY, TIMEOUT},
    ),
    "a list in itself": ("def f(x):\n    a = []\n    a.append(a)\n    return a", {CRASHED}),
    "deep lists": (nest_lists("[]"), {CRASHED}),
    "a null pointer": (evade_guard("ctypes.string_at(0)"), {CRASHED}),
}

OUTPUTS = {
    "a long string": ("def f(x): return 'x' * 30_000_000", {WRONG_ANSWER}),
    "a long list": ("def f(x): return list(range(10**6))", {WRONG_ANSWER}),
    "a list of objects": ("def f(x): return [f] * 10**6", {WRONG_ANSWER, TIMEOUT, MEMORY}),
    "a generator": ("import itertools\ndef f(x): return itertools.count()", {WRONG_ANSWER}),
    "a coroutine": ("async def f(x): return 2 * x", {WRONG_ANSWER}),
    "a huge integer": ("def f(x): return 1 << 10**7", {WRONG_ANSWER}),
    "a huge integer in full": (forge_line(b'{"output": ' + b"7" * 5_000 + b"}\n"), {CRASHED}),
    "not a number": ("def f(x): return float('nan')", {WRONG_ANSWER}),
    "half a character": ("def f(x): return '\\udcff' * 10", {WRONG_ANSWER}),
    "a pickle": (
        "class A:\n    def __reduce__(self): return (print, ('unpickled',))\ndef f(x): return A()",
        {WRONG_ANSWER},
    ),
    "equal to everything": (
        "class A: __eq__, __hash__ = lambda *_: True, lambda _: 0\ndef f(x): return A()",
        {WRONG_ANSWER},
    ),
    "a number equal to everything": (
        "class A(int):\n    def __eq__(self, other): return True\n"
        "    __hash__ = int.__hash__\n    __float__ = __index__ = lambda self: 2\n"
        "def f(x): return A(0)",
        {WRONG_ANSWER},
    ),
    "another class": (
        "class A:\n    __class__ = property(lambda self: int)\ndef f(x): return A()",
        {WRONG_ANSWER, CRASHED},
    ),
    "an instance of everything": (
        "class M(type): __instancecheck__ = lambda *_: True\n"
        "class A(metaclass=M): pass\ndef f(x): return A",
        {WRONG_ANSWER},
    ),
    "a number that lies about itself": (
        "class A(int): __repr__ = __str__ = lambda self: '2'\ndef f(x): return A(0)",
        {WRONG_ANSWER},
    ),
    "a mapping with hostile keys": (
        "class A(dict):\n    def items(self): return [(self, 1)]\ndef f(x): return A()",
        {CRASHED, WRONG_ANSWER},
    ),
    "keys that cannot be hashed": (forge_line(b'{"output": {"dict": [[[1], 2]]}}\n'), {CRASHED}),
}

FORGERIES = {
    "a verdict": (forge_line(b'{"reason": "passed"}\n'), {CRASHED}),
    "a reward": (forge_line(b'{"reward": 1.0, "reason": "passed"}\n'), {CRASHED}),
    "an excuse": (forge_line(b'{"reason": "infrastructure"}\n'), {CRASHED}),
    "another excuse": (forge_line(b'{"reason": "bad_problem"}\n'), {CRASHED}),
    "an unknown reason": (forge_line(b'{"reason": ["passed"]}\n'), {CRASHED}),
    "an output": (forge_line(b'{"output": 0}\n'), {WRONG_ANSWER}),
    "outputs of all calls": (forge_line(b'{"output": 2}\n' * 100), {WRONG_ANSWER}),
    "an object": (forge_line(b'{"output": {"object": "int"}}\n'), {WRONG_ANSWER}),
    "a digest": (forge_line(b'{"output": {"digest": "00"}}\n'), {WRONG_ANSWER}),
    "a digest of everything": (forge_line(b'{"output": {"digest": {}}}\n'), {CRASHED}),
    "no UTF-8": (forge_line(b"\xff\xfe\n"), {CRASHED}),
    "no JSON": (forge_line(b"passed\n"), {CRASHED}),
    "empty lines": (forge_line(b"\n" * 100_000), {CRASHED}),
    "no end of line": (forge_line(b"[" * 10**6), {CRASHED, WRONG_ANSWER}),
    "another shape": (forge_line(b"[1]\n"), {CRASHED}),
    "too deep": (forge_line(b"[" * 9_000 + b"\n"), {CRASHED}),
    "too deep, encoded": (
        forge_line(b'{"output": ' + b'{"tuple": [' * 3_000 + b"]}" * 3_000 + b"}\n"),
        {CRASHED},
    ),
    "an unhashable set": (forge_line(b'{"output": {"set": [[1]]}}\n'), {CRASHED}),
    "a request": (forge_line(b"\0" * 17), {CRASHED}),
    "a closed socket": ("import os\nos.closerange(0, 64)\n" + RIGHT, {CRASHED}),
    "a silent end": ("import os\ndef f(x): os._exit(0)", {CRASHED}),
    "sys.exit(0)": ("import sys\ndef f(x): sys.exit(0)", {CRASHED}),
    "sys.exit(0) at import": ("raise SystemExit(0)", {CRASHED}),
    "an exit handler": (
        "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): raise SystemExit",
        {CRASHED},
    ),
    "an interrupt": ("raise KeyboardInterrupt", {CRASHED}),
    "patched builtins": (
        "import builtins\nbuiltins.len = lambda x: 0\nbuiltins.isinstance = lambda *a: True\n"
        "builtins.all = builtins.any = builtins.sorted = lambda *a: True\ndef f(x): return 0",
        {WRONG_ANSWER, CRASHED},
    ),
    "patched json": (
        'import json\njson.dumps = lambda *a, **k: \'{"reason": "passed"}\'\ndef f(x): return 0',
        {CRASHED},
    ),
    "patched import": (
        "import builtins\nbuiltins.__import__ = lambda *a, **k: None\n"
        "import encoding\ndef f(x): return encoding",
        {WRONG_ANSWER},
    ),
    "an assertion that always holds": (
        "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\ndef f(x): assert 0",
        {CRASHED},
    ),
    "patched encoding": (
        "import sys\nsys.modules['encoding'].encode_output = lambda value: {'object': 'passed'}\n"
        "def f(x): return 0",
        {WRONG_ANSWER},
    ),
    "patched runner": (
        "import sys\nsys.modules['__main__'].send_line = lambda job, answer: None\n" + RIGHT,
        {CRASHED},
    ),
    "patched isolation": (
        "import sys\nsys.modules['isolation'].Forbidden = sys.modules['isolation'].install_guard = int\n"
        "def f(x): return open('/etc/passwd').read()",
        {CRASHED, FORBIDDEN},
    ),
    "the frames above": (
        "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
        "        frame.f_locals.update(reason='passed', answer={'reason': 'passed'})\n"
        "        if 'work' in frame.f_locals: frame.f_locals['work']['calls'].clear()\n"
        "        frame = frame.f_back\n    return 0",
        {WRONG_ANSWER, CRASHED},  # from Python 3.13 on, frames are really changed (PEP 667)
    ),
    "no calls": (
        "import sys\nsys._getframe(2).f_locals['work']['calls'].clear()\ndef f(x): return 2 * x",
        {CRASHED},
    ),
}

FORBIDDEN_ACTIONS = {
    "fork bomb": ("import os\ndef f(x):\n    while True: os.fork()", {FORBIDDEN}),
    "killing its parent": ("import os\nos.kill(os.getppid(), 0)", {FORBIDDEN}),
    "reading a file": ("def f(x): return open('/etc/passwd').read()", {FORBIDDEN}),
    "reading a folder": ("import os\ndef f(x): return os.listdir('/')", {FORBIDDEN}),
    "reading its descriptors": ("import os\nos.listdir('/proc/self/fd')", {FORBIDDEN}),
    "reading its memory": ("open('/proc/self/mem', 'r+b')", {FORBIDDEN}),
    "writing a file": (f"open('/tmp/{FILE_LEFT_BEHIND}', 'w')", {FORBIDDEN}),
    "a socket": ("import socket\ndef f(x): return socket.socket()", {FORBIDDEN}),
    "a process": ("import subprocess\nsubprocess.run(['true'])", {FORBIDDEN, CRASHED}),
    "a shell": ("import os\ndef f(x): return os.system('true')", {FORBIDDEN}),
    "the C library": ("import ctypes\nctypes.CDLL(None)", {FORBIDDEN}),
    "limits": ("import resource\nresource.setrlimit(0, (-1, -1))", {FORBIDDEN}),
    "a thread": (
        "import _thread, time\n_thread.start_new_thread(time.sleep, (60,))\n" + RIGHT,
        {CRASHED},
    ),
}

EVASIONS = {
    name: (evade_guard(action), {CRASHED, FORBIDDEN})
    for name, action in {
        "fork bomb": "while True: os.fork()",
        "fork and leave": "os.fork() or os.setsid() or os.fork()",
        "signal the parent": "os.kill(os.getppid(), 0)",
        "signal the group": "os.killpg(0, 0)",
        "tracing": "ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) and 1 / 0",
        "TCP": "socket.create_connection(('127.0.0.1', 9))",
        "UDP": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('127.0.0.1', 9))",
        "an abstract socket": f"socket.socket(socket.AF_UNIX).bind('\\0{FILE_LEFT_BEHIND}')",
        "reading": "os.open('/etc/passwd', os.O_RDONLY)",
        "a folder": f"os.mkdir('/tmp/{FILE_LEFT_BEHIND}')",
        "a link": f"os.symlink('/', '/tmp/{FILE_LEFT_BEHIND}')",
        "a fifo": f"os.mkfifo('/tmp/{FILE_LEFT_BEHIND}')",
        "kill self": "os.kill(os.getpid(), 9)",
        "stop self": "os.kill(os.getpid(), signal.SIGSTOP)",
        "signal everyone": "os.kill(-1, 0)",
        "a process": "subprocess.run(['/bin/true'])",
        "a program": "os.execv('/bin/sh', ['sh', '-c', 'sleep 60'])",
        "a unix socket": f"socket.socket(socket.AF_UNIX).bind('/tmp/{FILE_LEFT_BEHIND}')",
        "a file in /tmp": f"os.open('/tmp/{FILE_LEFT_BEHIND}', os.O_CREAT | os.O_WRONLY)",
        "a file in /dev/shm": f"os.open('/dev/shm/{FILE_LEFT_BEHIND}', os.O_CREAT | os.O_WRONLY)",
        "shared memory": "ctypes.CDLL(None).shmget(0, 4096, 0o1600) < 0 and 1 / 0",
        "a mount": "ctypes.CDLL(None).mount(b'a', b'/tmp', b'tmpfs', 0, None) and 1 / 0",
        "priority": "os.nice(-5)",
    }.items()
}

SOURCES = {
    "nothing": ("", {NO_ANSWER}),
    "another function": ("def g(x): return 2 * x", {NO_ANSWER}),
    "no function": ("f = 3", {CRASHED}),
    "half a character in the source": (RIGHT + "\n# \ud800", {UNPARSABLE}),
    "NUL": (RIGHT + "\n\0", {UNPARSABLE}),
    "parentheses": ("(" * 20_000, {UNPARSABLE}),
    "signs": ("-" * 100_000 + "1", {UNPARSABLE, CRASHED}),
    "a long sum": ("1" + "+1" * 20_000, {UNPARSABLE, CRASHED}),
    "indentation": ("".join(" " * i + "if 1:\n" for i in range(200)), {UNPARSABLE}),
    "megabytes": ("x = 1\n" * 10**6 + "def g(x): 1", {NO_ANSWER, TIMEOUT, MEMORY, UNPARSABLE}),
    "a folded constant": ("def f(x): return ('x' * 4096) * 4096 * 4096 * 4096", {MEMORY}),
    "an unfinished string": ('def f(x):\n    """\n    return 2 * x', {UNPARSABLE}),
    "a fence in a string": ('x = """\n```\n' + RIGHT + '\n```\n"""', {NO_ANSWER}),
    "a fence of nothing": ("```python\n```", {NO_ANSWER}),
    "fences": ("```\n" * 10_000, {NO_ANSWER, UNPARSABLE}),
    "an encoding": ("# coding: rot13\n" + RIGHT, {PASSED, UNPARSABLE}),
}

TABLES = {
    "time": TIME,
    "memory": MEMORY_AND_DEPTH,
    "output": OUTPUTS,
    "forged": FORGERIES,
    "forbidden": FORBIDDEN_ACTIONS,
    "evasion": EVASIONS,
    "source": SOURCES,
}
ATTACKS = {
    f"{table}: {name}": attack for table, rows in TABLES.items() for name, attack in rows.items()
}
