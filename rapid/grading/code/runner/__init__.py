"""The part of the code grader that runs inside the sandbox, beside hostile code.

It is a program of its own, started by `python rapid/grading/code/runner`, and needs only the
standard library. The grader imports two of its modules, `encoding` and `packages`, and
`lean/native_sandbox.py` imports `bpf`. Nothing in this folder sees an expected output.
"""
