"""Compares mathematical answers, one JSON line in and one out: the process behind `boxed`.

    python _boxed_worker.py SOCKET_FD MEMORY_BYTES

A process of its own, because sympy can take forever on a short answer and only a signal ends it.
An answer is read as LaTeX, by a grammar. math_verify's other reader, for plain expressions, ends in
sympy's `parse_expr`, which is `eval`: it is not used.
In: {"gold", "answer", "timeout"}, the last in seconds. Out: {"reason"}. When the time is up the
alarm kills the process, whatever it is doing and whether or not anybody still waits for it.
"""

import contextlib
import functools
import json
import logging
import resource
import signal
import socket
import sys

from math_verify import LatexExtractionConfig, parse, verify
from sympy import Basic, MatrixBase

READ_LATEX = (LatexExtractionConfig(),)


def main() -> None:
    fd, memory = map(int, sys.argv[1:])
    logging.disable()  # a remark on every answer that does not parse, and on disabled timeouts
    compare("\\frac{1}{2}", "0.5")  # builds parsers and tables: no answer's time should pay for it
    with contextlib.suppress(ValueError):  # macOS does not limit the address space
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with socket.socket(fileno=fd) as connection, connection.makefile("rw") as stream:
        print(json.dumps({"ready": True}), file=stream, flush=True)
        for line in stream:
            request = json.loads(line)
            signal.setitimer(signal.ITIMER_REAL, request["timeout"])
            reason = compare(request["gold"], request["answer"])
            signal.setitimer(signal.ITIMER_REAL, 0)
            print(json.dumps({"reason": reason}), file=stream, flush=True)


def compare(gold: str, answer: str) -> str:
    """The reason of the verdict on an answer: both are what stood in the box."""
    try:
        expected, given = read(gold), read(answer)
        if verify(list(expected), list(given), timeout_seconds=None):
            return "passed"
    except RecursionError:
        return "unparsable"
    except MemoryError:
        return "memory"
    if is_expression(expected) and not is_expression(given):
        return "unparsable"
    return "wrong_answer"


@functools.lru_cache(maxsize=4096)
def read(text: str) -> tuple:
    """What math_verify makes of an answer: an expression, if it is one, and its text."""
    # math_verify reads a percent sign behind a formula, and none inside of it.
    number = text.removesuffix("%").removesuffix("\\")
    formula = f"${number}$%" if text.endswith("%") else f"${text}$"
    # The whole answer or nothing: math_verify would go on to look for a fraction inside of it.
    return tuple(parse(formula, READ_LATEX, extraction_mode="first_match", parsing_timeout=None))


def is_expression(parsed: tuple) -> bool:
    return any(isinstance(item, Basic | MatrixBase) for item in parsed)


main()
