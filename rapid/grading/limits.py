"""The limits of grading, with their units. A megabyte (MB) is 1e6 bytes.

The time limit of a verdict is not here: it is the benchmark's `timeout` in params.yaml. Processes
that run beside hostile code import nothing from `rapid`, and get their limits when they start.

The programs that run in Lean and node define limits of their own, in `grading/lean`: the numbers
and depths of a term (`Export.lean`, `wasm/replay.js`), the kernel's work (`Export.lean`,
`wasm/frontend.js`), the lines of an export (`wasm/export.js`), and the size of the WebAssembly
Lean's memory (`wasm/runtime.js`, `wasm/memory.js`).
"""

MAX_CACHED_VERDICTS = 100_000  # verdicts in the cache of a pool of graders; each takes 0.5 kB

# --- Python code ---

# Address space of the process that runs a completion: EvalPlus's 4 GiB, which some reference
# solutions need.
CODE_MB = 4295
CODE_RUNNER_MB = 256  # memory of the runner, the process that forks a child for each completion
CODE_RESOURCES = {  # limits of each child, by the names of RLIMITs
    "NPROC": 0,  # further processes and threads
    "NOFILE": 32,  # open files
    "FSIZE": 0,  # bytes written to a file
    "CORE": 0,  # bytes of a core dump
}
# If the reference solution is slow, a completion may run longer than the benchmark's timeout:
# CODE_SLOWNESS times as long as the reference solution, as in EvalPlus, but at most
# CODE_SLOW_SECONDS.
CODE_SLOWNESS = 4.0
CODE_SLOW_SECONDS = 60.0
# Maximum size of one output of a completion, in bytes and in values (numbers, strings, containers).
# A multiple of the longest expected output is added (code/reference.py).
CODE_LINE_BYTES = 65_536
CODE_VALUES = 10_000
MAX_REFERENCES = 4096  # problems whose expected outputs a pool of graders keeps
REFERENCE_SECONDS = 300.0  # a reference solution is trusted to end, but may be slow
REFERENCE_LINE_BYTES = 256_000_000  # maximum size of one output of a reference solution
# Time for the runner to send its first message. If this limit were too short, the grader would fall
# back to a weaker layer of the sandbox on a busy machine.
CODE_START_SECONDS = 60.0
CODE_GRACE_SECONDS = 2.0  # for the runner to end the child, after the child's time limit
# Time for the runner to report the end of a child. After that the runner counts as dead.
CODE_REPLY_SECONDS = 30.0

# --- Mathematical answers ---

MATH_CHARACTERS = 1000  # maximum length of an answer; longer ones (none in MATH) are unparsable
MATH_BYTES = 4_000_000_000  # address space of the process that compares
MATH_MB = 5000  # memory of that process and of the worker that forks it, together
MATH_START_SECONDS = 120.0  # to import sympy, from a cold disk on a busy machine
MATH_GRACE_SECONDS = 2.0  # for a worker to end by itself before it is killed
# Time for a worker's reply, beyond twice the timeout. After that the worker counts as dead.
MATH_REPLY_SECONDS = 30.0

# --- Lean; a header is the code before a theorem, such as imports ---

LEAN_PROOF_BYTES = 8192  # maximum length of a proof in UTF-8; longer ones are forbidden
LEAN_EXPORT_BYTES = 1 << 26  # size of an elaborated proof as data; usually some ten thousand bytes
LEAN_LINE_BYTES = 1 << 20  # length of a Lean process's answer; usually some thousand bytes
LEAN_REPLACE_MB = 1500  # a process with more memory is replaced after its answer
LEAN_LEND_MB = 1000  # a process with more memory is not lent to another job; a new process has 600
LEAN_WASM_MB = 3000  # memory of node and of the WebAssembly Lean in it (limited by runtime.js too)
LEAN_NODE_HEAP_MEBIBYTES = 1024  # node's JavaScript heap; Lean's memory is not in it
LEAN_NODE_STACK_KIBIBYTES = 16_000  # V8's stack
LEAN_NATIVE_MB = 16_000  # memory of a native Lean; Mathlib's memory-mapped files take 5000 of it
LEAN_STACK_KIBIBYTES = 65_536  # a Lean process's stack, for deep recursion; 8192 is usual
LEAN_START_SECONDS = 300.0  # to import the header: seconds for core Lean, a minute for Mathlib
LEAN_STARTS = 3  # attempts to start a process, if it is killed from outside before it is ready
LEAN_CHECKERS = 2  # pairs of Lean processes that a grader keeps: one per header, each over 1 GB
