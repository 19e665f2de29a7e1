"""The part of the code grader that runs inside the sandbox, beside hostile code.

`python rapid/grading/inside` starts it as a program of its own, on the standard library alone. The
grader outside imports only `wire` from here. Nothing in this folder sees an expected output.
"""
