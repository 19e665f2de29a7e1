"""Every limit of grading, with its unit. A megabyte (MB) is 1e6 bytes.

The seconds of a verdict are `timeout` in params.yaml. Processes that stand beside hostile code
import nothing of `rapid`: they are handed their limits when they start. What Lean's constructors
can hold, and the pages of the WebAssembly Lean's memory, stand where they are enforced:
`grading/lean/Export.lean`, and `replay.js` and `runtime.js` in `grading/lean/wasm`.
"""

REMEMBERED_VERDICTS = 100_000  # by a pool of graders; each takes half a kilobyte

# --- Python code ---

CODE_MB = 4295  # address space of a completion: EvalPlus's 4 GiB, which some references need
CODE_RUNNER_MB = 256  # for the runner, beside its one job
CODE_RESOURCES = {  # of a completion's process, by the name of the RLIMIT_ that enforces it
    "NPROC": 0,  # further processes and threads
    "NOFILE": 32,  # open files
    "FSIZE": 0,  # bytes written to a file
    "CORE": 0,  # bytes of a core dump
}
# A completion may take so many times as long as the reference solution, as in EvalPlus, but not
# over so many seconds because of that.
CODE_SLOWNESS = 4.0
CODE_SLOW_SECONDS = 60.0
# One output of a completion, beyond a multiple of the longest expected one:
CODE_LINE_BYTES = 65_536
CODE_VALUES = 10_000  # numbers, strings and containers in it
REFERENCE_SECONDS = 300.0  # a reference solution is trusted to end, not to be fast
REFERENCE_LINE_BYTES = 256_000_000  # of one expected output
# For the runner to say hello: too short, and a busy machine gets weaker walls.
CODE_START_SECONDS = 60.0
CODE_GRACE_SECONDS = 2.0  # for the runner to end a child, beyond the time of the job
CODE_REPLY_SECONDS = 30.0  # for the runner to report a child's end: longer, and it is stuck

# --- Mathematical answers ---

MATH_CHARACTERS = 1000  # of an answer that is worth reading; MATH's are far shorter
MATH_BYTES = 4_000_000_000  # address space of the process that compares; 9^{9^9} asks for more
MATH_MB = 5000  # of that process and the worker around it
MATH_START_SECONDS = 120.0  # for sympy to be imported, from a cold disk on a busy machine
MATH_GRACE_SECONDS = 2.0  # for a worker to end
MATH_REPLY_SECONDS = 30.0  # beyond its timeout, for a worker's reply: longer, and it is stuck

# --- Lean ---

LEAN_PROOF_BYTES = 8192  # of a proof, in UTF-8
LEAN_EXPORT_BYTES = 1 << 26  # a proof has some ten thousand
LEAN_LINE_BYTES = 1 << 20  # of an answer, which has some thousand
LEAN_WORN_MB = 1500  # of memory, above which a process is replaced after its answer
LEAN_LENT_MB = 1000  # of memory, above which a process goes to no other job; unused it has 600
LEAN_WASM_MB = 3000  # Lean's memory has a limit of its own (runtime.js), as node's has here
LEAN_NODE_HEAP_MEBIBYTES = 1024  # beside Lean's own memory
LEAN_NODE_STACK_KIBIBYTES = 16_000
LEAN_NATIVE_MB = 16_000  # Mathlib's files, which are mapped into memory, are 5000 of them
LEAN_STACK_KIBIBYTES = 65_536  # for deep recursion; 8192 is usual
LEAN_START_SECONDS = 300.0  # for importing the header: seconds for core Lean, a minute for Mathlib
LEAN_STARTS = 3  # of a process that something outside keeps ending before it is ready
LEAN_CHECKERS = 2  # pairs of Lean processes of one grader, one for each header; a gigabyte each
