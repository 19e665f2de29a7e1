"""The part of the code grader that runs inside the sandbox, beside hostile code.

`python rapid/grading/code/runner` starts it as a program of its own, on the standard library
alone. The grader imports only `encoding` from here, and the box of Lean only `bpf`. Nothing in this
folder sees an expected output.
"""
