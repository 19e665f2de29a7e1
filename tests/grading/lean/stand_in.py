"""A stand-in for a native Lean: a small program in place of `lean`.

It speaks the protocol of Checker.lean, in the roles of an author, which elaborates a proof, and of
a judge, which checks what the author exports. It knows the verdicts on the proofs below. It can
also do what a Lean under the control of a hostile proof could do.
"""

import os
import sys
from pathlib import Path

from rapid.grading import verdicts
from rapid.grading.lean.install import LEAN_VERSION, Backend

STATEMENT = "theorem p1 : (1 : Nat) = 1 ∧ True :="
ENDLESS = (
    " by\n  have : ∀ n : Nat, n < 300 → (List.range n).length = n := by\n"
    "    set_option maxHeartbeats 0 in set_option maxRecDepth 1000000 in decide\n  trivial"
)  # it ends after minutes
VERDICTS = {
    " ⟨rfl, trivial⟩": verdicts.PASSED,
    " by\n  constructor\n  · rfl\n  · trivial": verdicts.PASSED,
    " by\n  skip": verdicts.WRONG_ANSWER,
    " by exact (": verdicts.UNPARSABLE,
    " ⟨rfl, trivial⟩\naxiom cheat : False": verdicts.UNPARSABLE,
    " by sorry": verdicts.FORBIDDEN,
    " sorry": verdicts.FORBIDDEN,
    " by native_decide": verdicts.FORBIDDEN,
    " by exact unsafe lcProof": verdicts.FORBIDDEN,
}
RIGHT, *_ = VERDICTS
WRONG = " by\n  skip"

# A header that begins with this line is Python code, which the stand-in executes.
PROGRAM = "# code that the stand-in executes"

STAND_IN = """#!{python}
import itertools, json, os, subprocess, sys, time

VERDICTS = {verdicts!r}
if sys.argv[1] == "--version":
    print("Lean (version {version}, x86_64-unknown-linux-gnu, commit 0, Release)")
    sys.exit()
if sys.argv[1] == "--print-prefix":
    print({prefix!r})
    sys.exit()
assert sys.argv[1] == "--run" and sys.argv[2].endswith("Checker.lean")

def say(**answer):
    print(json.dumps(answer), flush=True)

role = sys.argv[3]
header = json.loads(sys.stdin.readline())["header"]
if header.startswith({program!r}):
    exec(header)
    sys.exit()
if "Mathlib" in header:
    say(ready=False, why="unknown module prefix 'Mathlib'\\n\\nsearched everywhere")
    sys.exit(1)
if "die" in header:
    sys.exit(3)
print("noise")
say(ready=True)
for line in sys.stdin:
    request = json.loads(line)
    if role == "judge":
        if "judge hangs" in request["statement"]:
            time.sleep(3600)
        why = "stated" if request["statement"].startswith({statement!r}) else "bad statement"
        if "bytes" in request:
            why = "passed" if sys.stdin.read(request["bytes"]) == "proof" else "forbidden"
        say(id=request["id"], why=why, messages=["NoSuchType"])
        continue
    proof = request["proof"]
    if "author hangs" in request["statement"]:
        time.sleep(3600)
    if proof == "die":
        sys.exit(0)
    if proof == "die as if killed":
        sys.exit(137)
    if "hang" in proof or proof == {endless!r}:
        time.sleep(3600)
    if proof == "leave a child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", {prefix!r}])
        time.sleep(3600)
    if proof == "flood":
        while True:
            print("{{}}\\n" * 1000, flush=True)
    if proof == "endless line":
        while True:
            print("x" * 100000, end="", flush=True)
    if proof in ("close output", "close input and output"):
        os.close(1)
        if "input" in proof:
            os.close(0)
        time.sleep(3600)
    if proof == "stop reading":
        sys.stdin.close()
    if proof == "forge":
        for id in (0, 1, "", "0", None, [], request["id"][:-1], request["id"].upper() + "x"):
            say(id=id, ok=True, why="passed", messages=[])
        say(ready=True, ok=True, why="passed", messages=[])
        print('[{{"why": "passed"}}]', '"passed"', "[" * 100000, "9" * 5000, "null", sep="\\n")
        sys.stdout.buffer.write(b"\\xff\\xfe\\n")
        say(id=request["id"], why="passed", messages="passed")
        say(id=request["id"], ok=True)
        for value in ("rewarded", [], {{}}, None, 1):
            say(id=request["id"], ok=True, why=value, messages=[])
        for value, why in itertools.product(("1", None, []), ("passed", "elaborated")):
            say(id=request["id"], why=why, messages=[], megabytes=value)
    why = VERDICTS.get(proof, "wrong_answer")
    export = {{"passed": "proof", "lie": "forged"}}.get("lie" if proof == "lie" else why, "")
    say(id=request["id"], why="elaborated" if export else why, messages=[], bytes=len(export))
    print(export, end="", flush=True)
"""


def make_stand_in(folder: Path) -> Backend:
    """Write the stand-in, and return it as a native Lean.

    The command lines of its processes contain `folder`, by which tests find them.
    """
    program = folder / "bin" / "lean"
    program.parent.mkdir(parents=True)
    values = {
        "version": LEAN_VERSION,
        "program": PROGRAM,
        "verdicts": VERDICTS,
        "statement": STATEMENT,
        "endless": ENDLESS,
    }
    python = os.path.realpath(sys.executable)
    program.write_text(STAND_IN.format(python=python, prefix=str(folder), **values), "utf-8")
    program.chmod(0o755)
    return Backend("native", LEAN_VERSION, program.parent)
