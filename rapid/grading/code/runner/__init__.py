"""The part of the code grader that runs inside the sandbox, beside hostile code.

It is a program of its own, started by `python rapid/grading/code/runner`, and needs only the
standard library. The grader imports two of its modules, `encoding` and `packages`, and
`lean/native_sandbox.py` imports `bpf`. A process that runs a completion sees no expected output.
"""
