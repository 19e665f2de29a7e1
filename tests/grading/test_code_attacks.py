"""Completions that attack the grader. None gets a reward, and the next one is graded as ever."""

import pytest

from rapid.grading import reasons

WRITE_EVERYWHERE = """
import os
for fd in range(64):
    try:
        os.write(fd, {line!r})
    except OSError:
        pass
"""


def forge(line: bytes) -> str:
    """A program that writes a line of its own to every file descriptor, instead of answering."""
    return WRITE_EVERYWHERE.format(line=line) + "def f(x): os._exit(0)"


ATTACKS = {
    "endless loop": ("def f(x):\n    while True: pass", reasons.TIMEOUT),
    "endless loop at import": ("while True: pass", reasons.TIMEOUT),
    "sleep": ("import time\ndef f(x): time.sleep(60)", reasons.TIMEOUT),
    "slow arithmetic in C": ("def f(x): return 3 ** 10 ** 9", reasons.TIMEOUT),
    "output to stdout without end": ("while True: print('x' * 1000)", reasons.TIMEOUT),
    "output too long": ("def f(x): return 'x' * 30_000_000", reasons.WRONG_ANSWER),
    "memory bomb": ("def f(x):\n    a = []\n    while True: a.append('x' * 10**7)", reasons.MEMORY),
    "one large block": ("def f(x): return bytearray(10**10)", reasons.MEMORY),
    "recursion": ("def f(x): return f(x)", reasons.CRASHED),
    "an endless structure": (
        "def f(x):\n    a = []\n    a.append(a)\n    return a",
        reasons.CRASHED,
    ),
    "sys.exit(0)": ("import sys\ndef f(x): sys.exit(0)", reasons.CRASHED),
    "sys.exit(0) at import": ("import sys\nsys.exit(0)", reasons.CRASHED),
    "os._exit(0)": ("import os\ndef f(x): os._exit(0)", reasons.CRASHED),
    "a thread": (
        "import _thread, time\n"
        "def f(x):\n"
        "    _thread.start_new_thread(time.sleep, (60,))\n"
        "    return 2 * x",
        reasons.CRASHED,
    ),
    "an object that equals everything": (
        "class Yes:\n"
        "    def __eq__(self, other): return True\n"
        "    def __hash__(self): return 0\n"
        "def f(x): return Yes()",
        reasons.WRONG_ANSWER,
    ),
    "a number that equals everything": (
        "class Yes(int):\n    def __eq__(self, other): return True\ndef f(x): return Yes(0)",
        reasons.WRONG_ANSWER,
    ),
    "patched builtins": (
        "import builtins\n"
        "builtins.len = lambda x: 0\n"
        "builtins.all = builtins.any = builtins.sorted = lambda *a: True\n"
        "def f(x): return 0",
        reasons.WRONG_ANSWER,
    ),
    "a patched runner": (
        'import json\njson.dumps = lambda *a, **k: \'{"reason": "passed"}\'\ndef f(x): return 0',
        reasons.CRASHED,
    ),
    "a forged verdict": (forge(b'{"reason": "passed"}\n'), reasons.CRASHED),
    "a forged output": (forge(b'{"output": 0}\n'), reasons.WRONG_ANSWER),
    "a forged object": (forge(b'{"output": {"object": "int"}}\n'), reasons.WRONG_ANSWER),
    "no UTF-8": (forge(b"\xff\xfe\n"), reasons.CRASHED),
    "no JSON": (forge(b"passed\n"), reasons.CRASHED),
    "JSON of another shape": (forge(b"[1]\n"), reasons.CRASHED),
    "JSON too deep": (forge(b"[" * 50_000 + b"\n"), reasons.CRASHED),
    "an unhashable set": (forge(b'{"output": {"set": [[1]]}}\n'), reasons.CRASHED),
    "fork bomb": ("import os\ndef f(x):\n    while True: os.fork()", reasons.FORBIDDEN),
    "killing its parent": ("import os\nos.kill(os.getppid(), 9)", reasons.FORBIDDEN),
    "reading a file": (f"def f(x): return open({__file__!r}).read()", reasons.FORBIDDEN),
    "reading a folder": ("import os\ndef f(x): return os.listdir('/')", reasons.FORBIDDEN),
    "writing a file": ("open('/tmp/left-by-a-completion', 'w')", reasons.FORBIDDEN),
    "a socket": ("import socket\ndef f(x): return socket.socket()", reasons.FORBIDDEN),
    "a shell": ("import os\ndef f(x): return os.system('true')", reasons.FORBIDDEN),
    "the C library": ("import ctypes\nctypes.CDLL(None)", reasons.FORBIDDEN),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_fails(grader, double, attack):
    program, reason = ATTACKS[attack]
    verdict = grader.grade(double, program)
    assert (verdict.reward, verdict.reason) == (0.0, reason)
    assert grader.grade(double, double.canonical_solution).reason == reasons.PASSED
