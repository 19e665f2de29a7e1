"""The part of the code grader that runs inside the sandbox, beside hostile code.

`python rapid/grading/code/runner` starts it as a program of its own, on the standard library alone. The
grader outside imports only `encoding` from here. Nothing in this folder sees an expected output.
"""
