"""One program is extracted from a completion, in any form in which models write it."""

import pytest

from rapid.grading import verdicts

RIGHT = "def f(x):\n    return 2 * x"
WRONG = "def f(x):\n    return 3 * x"
HELPER = "def double(x):\n    return 2 * x"
CALLER = "def f(x):\n    return double(x)"
FENCED = f"```python\n{RIGHT}\n```"
FILLED_TABLE = "table = {}\ndef fill():\n    for i in range(-99, 99): table[i] = 2 * i\n"
NEXT_TASK = '"""\nWrite a function to find the larger of two.\nassert g(1, 2) == 2\n"""\n'


def fence_each(*programs: str) -> str:
    return "\n\nAnd:\n\n".join(f"```python\n{program}\n```" for program in programs)


def indent_lines(text: str, margin: str = "    ") -> str:
    return "".join(margin + line for line in text.splitlines(keepends=True))


FENCES = {
    "none": RIGHT,
    "without a language": f"```\n{RIGHT}\n```",
    "four backticks": f"````python\n{RIGHT}\n````",
    "five backticks": f"`````\n{RIGHT}\n`````",
    "tildes": f"~~~python\n{RIGHT}\n~~~",
    "more tildes": f"So:\n~~~~ py\n{RIGHT}\n~~~~\nDone.",
    "tags": f"[PYTHON]\n{RIGHT}\n[/PYTHON]\n[TESTS]\nassert f(1) == 3\n[/TESTS]",
    "tags in the lines of code": f"[PYTHON]{RIGHT}[/PYTHON]",
    "a tag that only closes": f"{RIGHT}\n[/PYTHON]\nThis doubles.",
    "python3": f"```python3\n{RIGHT}\n```",
    "Python": f"```Python\n{RIGHT}\n```",
    "attributes": f"``` {{.python .numberLines}}\n{RIGHT}\n```",
    "a title": f'```python title="f.py"\n{RIGHT}\n```',
    "the language in a line of its own": f"```\npython\n{RIGHT}\n```",
    "carriage returns": f"So:\n\n{FENCED}\n\nDone.".replace("\n", "\r\n"),
    "carriage returns alone": FENCED.replace("\n", "\r"),
    "a byte order mark": f"\ufeff{RIGHT}",
    "in a list": f"1. So:\n\n{indent_lines(FENCED, '   ')}\n\n2. Done.",
    "in a list, with tabs": f"- So:\n{indent_lines(FENCED, chr(9))}",
    "indented, not its code": f"  ```python\n{RIGHT}\n  ```",
    "only its code indented": f"```python\n{indent_lines(RIGHT)}\n```",
    "never closed": f"So:\n```python\n{RIGHT}",
    "only closed": f"{RIGHT}\n```\nDone.",
    "closed in the last line of code": f"```python\n{RIGHT}```\nDone.",
    "opened in mid-line": f"So: ```python\n{RIGHT}\n```",
    "closed with a word": f"```\n{RIGHT}\n``` is `f`:\n```\nf(2)\n```",
    "closed by more backticks": f"```\n{RIGHT}\n````\nSo.",
    "in a fence": f"````markdown\nSo:\n{FENCED}\n````",
    "inline code": f"``` f ``` or `f`:\n{FENCED}\nwith ```x``` as argument.",
    "prose in the fence": f"```\nHere it is:\n\n{RIGHT}\n\nIt doubles.\n```",
    "text around": f"I'd (simply) double x:\n\n{FENCED}\n\nIt's O(1): x = 2 gives 4.",
    "thoughts before": f"<think>\n{fence_each(WRONG)}\nNo.\n</think>\n{FENCED}",
    "an answer's tags": f"<answer>\n{RIGHT}\n</answer>",
}

STRINGS = {
    "a fence in a docstring": '```python\ndef f(x):\n    """Doc.\n\n    ```python\n    f(1)\n    ```\n    """\n    return 2 * x\n```',
    "at the margin": '```python\ndef f(x):\n    """Doc.\n```\nf(1)\n```\n    """\n    return 2 * x\n```',
    "of one line": '```\ndef f(x):\n    """\n    ```f(1)```\n    """\n    return 2 * x\n```',
    "one that does not close": '```python\ndef f(x):\n    """Doc.\n```\n    """\n    return 2 * x\n```',
    "in a string": '```python\ndef f(x):\n    s = """\n```\n"""\n    return 2 * x\n```\nDone.',
    "without a fence around": 'def f(x):\n    """Doc.\n    ```\n    f(1)\n    ```\n    """\n    return 2 * x\n\nIt\'s short.',
    "in a fence of four": '````python\ndef f(x):\n    """\n    ```\n    x\n    ```\n    """\n    return 2 * x\n````',
    "in a comment": "```python\n# ```\ndef f(x):\n    # ```python\n    return 2 * x\n# ```\n```",
    "other markup": "```python\ndef f(x):\n    s = '''\n[/PYTHON]\n~~~\n'''\n    return 2 * x\n```",
    "a definition in a string": f"```python\nold = '''\n{WRONG}\n'''\n{RIGHT}\n```",
    "a docstring first": f'```python\n"""Solution:\n\n{WRONG}\n"""\n{RIGHT}\n```',
}

TEXT = {
    "before": f"Here is the function:\n\n{RIGHT}",
    "before, like code": f"from the list of\nx = the number\nif it works\n{RIGHT}",
    "a word before": f"Solution\n\n{RIGHT}\n",
    "a note before": f"Note: it\n\n{RIGHT}\n",
    "after": f"{RIGHT}\n\nThis function returns 2 * x.",
    "after, a word": f"{RIGHT}\n\nExplanation\n",
    "after, an apostrophe": f"{RIGHT}\n\n\nExplanation: it's simple.",
    "after, a parenthesis": f"{RIGHT}\n(see above",
    "after, indented": f"{RIGHT}\n\n  It doubles.",
    "after, in the body": f"{RIGHT}\n\n    It doubles its argument.",
    "on into the next task": f"{RIGHT}\n\n\n{NEXT_TASK}def g(a, b):\n    return max(a, b)\n",
    "on into the next task, cut": f"{RIGHT}\n\n\n{NEXT_TASK}def g(a, b):\n    return max(a",
    "on into the next task, cut after def": f"{RIGHT}\n\ndef g(a, b):",
    "on into try, cut": f"{RIGHT}\n\ntry:\n    y = 1\n    z = 2\n",
    "on into a decorator, cut": f"{RIGHT}\n\n@cache\n",
    "on into a string, cut": f'{RIGHT}\n\n"""\nWrite a function to',
    "on into a comment": f"{RIGHT}\n\n# Write a function to find the maximum.\ndef g(x):\n    return max(x",
    "on into itself": f"{RIGHT}\n\n{WRONG}\n",
    "on into itself, cut": f"{RIGHT}\n\ndef f(x):\n    y = 2 * x\n",
    "on into itself, with text between": f"{RIGHT}\n\nIt's that.\n\n{WRONG}\n",
    "on into other code": f"{RIGHT}\n\n#include <stdio.h>\nint main() {{ return 0; }}",
    "a task that is never closed": f'"""\n{RIGHT}',
    "the example first": f"assert f(1) == 2\n\n{RIGHT}",
    "a helper that is broken": f"```\ndef g(x:\n    return x\n\n{RIGHT}\n```",
    "a final marker": f"{RIGHT}\n<|endoftext|>",
}

BLOCKS = {
    "imports in one": fence_each("import math", "def f(x):\n    return math.prod([2, x])"),
    "imports in a later one": fence_each("def f(x):\n    return math.prod([2, x])", "import math"),
    "imports outside": f"import math\n\n{fence_each('def f(x):' + chr(10) + '    return math.prod([2, x])')}",
    "a helper before": fence_each(HELPER, CALLER),
    "a helper after": fence_each(CALLER, HELPER),
    "a helper of a helper": fence_each("import math", "def double(x):\n    return math.prod([2, x])", CALLER),
    "a helper from the first of two versions": fence_each(f"{HELPER}\n{WRONG}", CALLER),
    "the last helper": fence_each("def double(x):\n    return x", HELPER, CALLER),
    "its own helper": fence_each("def double(x):\n    return x", f"{HELPER}\n{CALLER}"),
    "a table": fence_each("table = []\nfor i in range(999): table.append(2 * i)", "def f(x):\n    return table[x] if x in range(9) else 2 * x"),
    "a constant": fence_each("TWO = 2", "def f(x):\n    return TWO * x"),
    "a first version": fence_each(WRONG, RIGHT),
    "a use": fence_each(RIGHT, "print(f(2))"),
    "tests": fence_each(RIGHT, "from solution import f\n\ndef test_f():\n    assert f(1) == 3"),
    "tests before": fence_each("import pytest\nassert f(1) == 3", RIGHT),
    "a shell": f"```bash\npip install numpy\n```\n{FENCED}\n```\n4\n```",
    "code in the text after": f"{FENCED}\n\nor\n\nf = 2\n",
    "a last version that is cut": f"{FENCED}\nShorter:\n```python\ndef f(x):\n    y = x",
    "a builtin's name": fence_each(f"def sum(xs):\n    return 0\n{WRONG}", "def f(x):\n    return sum([x, x])"),
}  # fmt: skip

TESTS = {
    "a wrong assert": f"{RIGHT}\n\nassert f(1) == 3",
    "a wrong assert in a fence": fence_each(f"{RIGHT}\n\nassert f(1) == 3, 'no'"),
    "exit": f"{RIGHT}\nexit()",
    "sys.exit": f"import sys\n{RIGHT}\nsys.exit(1)",
    "raise": f"{RIGHT}\nraise SystemExit(1)",
    "print": f"{RIGHT}\nprint(f(2))\nprint(undefined)",
    "print without parentheses": f"{RIGHT}\nprint f(2)",
    "main": f"{RIGHT}\nif __name__ == '__main__':\n    print(1 / 0)",
    "main, called": f"{RIGHT}\ndef main():\n    n = int(input())\n    print(f(n))\nmain()",
    "input": f"{RIGHT}\nn = int(input('x: '))\nprint(f(n))",
    "a menu": f"{RIGHT}\nwhile True:\n    try:\n        n = int(input())\n    except Exception:\n        print('again')",
    "a slow test": f"{RIGHT}\nresult = [f(i) for i in range(10**12)]\nprint(result)",
    "unittest": f"import unittest\n{RIGHT}\nclass Test(unittest.TestCase):\n    def test(self): self.assertEqual(f(1), 3)\nunittest.main()",
    "doctest": f"import doctest\n{RIGHT}\ndoctest.testmod()",
    "a test framework": f"{RIGHT}\nimport pytest\n@pytest.mark.slow\ndef test(): pass",
    "an import of itself": f"{RIGHT}\nfrom solution import f",
    "await": f"{RIGHT}\nawait f(1)",
    "return": f"{RIGHT}\nreturn f(1)",
}  # fmt: skip

STATE = {
    "a loop that fills a table": "table = []\nfor i in range(999): table.append(2 * i)\ndef f(x): return table[x] if x in range(9) else 2 * x",
    "a table filled by a call": f"{FILLED_TABLE}fill()\ndef f(x): return table.get(x, 2 * x)",
    "a table filled after": f"{FILLED_TABLE}def f(x): return table.get(x, 2 * x)\nfill()\nassert f(1) == 3\n",
    "a global": "def fill():\n    global two\n    two = 2\ndef f(x): return two * x\nfill()",
    "an attribute": "def f(x): return f.two * x\nf.two = 2",
    "a memory": "def f(x, memory={}):\n    return memory.setdefault(x, 2 * x)\nf(1)",
    "the recursion limit": "import sys\nsys.setrecursionlimit(5000)\ndef g(n): return n and 1 + g(n - 1)\ndef f(x): return 2 * x + g(2000) - 2000",
    "a decorator": f"from functools import lru_cache\n@lru_cache(maxsize=None)\n{RIGHT}",
    "a decorator of its own": f"def same(g): return g\n@same\n{RIGHT}",
    "a wrapped function": f"import functools\n{RIGHT}\nf = functools.lru_cache(f)",
    "overloads": f"from typing import overload\n@overload\ndef f(x: int) -> int: ...\n@overload\ndef f(x: str) -> str: ...\n{RIGHT}",
    "a partial": "from functools import partial\nfrom operator import mul\nf = partial(mul, 2)",
    "an import as": "from operator import add as plus\nf = lambda x: plus(x, x)",
    "a try": "try:\n    import nothing_of_this_name\nexcept ImportError:\n    two = 2\ndef f(x): return two * x",
    "a condition": "import sys\nif sys.version_info > (3,):\n    def f(x): return 2 * x\nelse:\n    def f(x): return x",
    "a class": "class Doubler:\n    def __call__(self, x): return 2 * x\nf = Doubler()",
    "postponed annotations": "from __future__ import annotations\ndef f(x: Number) -> Number: return 2 * x",
    "exec": "exec('def f(x): return 2 * x')",
    "one that is redefined in a block": fence_each(f"{WRONG}\n\n{RIGHT}"),
}  # fmt: skip

ACCEPTED = {
    f"{table}: {name}": completion
    for table, rows in {
        "fence": FENCES, "string": STRINGS, "text": TEXT, "blocks": BLOCKS, "test": TESTS, "state": STATE,
    }.items()
    for name, completion in rows.items()
}  # fmt: skip


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_right_function_is_rewarded(grader, double, case):
    assert grader.grade(double, ACCEPTED[case]).reason == verdicts.PASSED


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_wrong_function_is_not_rewarded(grader, double, case):
    """The completion is the same but for the factor of two."""
    completion = ACCEPTED[case].replace("2 *", "1 +").replace("two = 2", "two = 3")
    completion = (
        completion.replace("TWO = 2", "TWO = 3").replace("x, x", "x, 1").replace("[2, x]", "[3, x]")
    )
    completion = completion.replace("partial(mul, 2)", "partial(mul, 3)")
    assert completion != ACCEPTED[case]
    assert not grader.grade(double, completion).reward


REFUSED = {
    "an error after the answer": (f"{RIGHT}\n    if x", verdicts.UNPARSABLE),
    "an error in the function": ("def f(x):\n    return (2 * x", verdicts.UNPARSABLE),
    "an error in its first line": ("def f(x) return\n    f = 2", verdicts.UNPARSABLE),
    "an error in a block": (f"```\nimport math\n{RIGHT})\n```", verdicts.UNPARSABLE),
    "the last block": (fence_each(RIGHT, WRONG), verdicts.WRONG_ANSWER),
    "all values in turn": (fence_each(*(f"def f(x): return {n}" for n in range(20))), verdicts.WRONG_ANSWER),
    "versions in one text": (f"{WRONG}\n\n{RIGHT}", verdicts.WRONG_ANSWER),
    "a definition in prose": ("Write def f(x) so that it returns 2 * x.", verdicts.UNPARSABLE),
    "a definition in a comment": (f"# {RIGHT.splitlines()[0]}", verdicts.NO_ANSWER),
    "a definition in a string": (f"'''\n{RIGHT}\n'''", verdicts.NO_ANSWER),
    "a broken definition after a block": (f"```\nx = 1\n```\n{RIGHT})", verdicts.UNPARSABLE),
    "a method": (f"class A:\n{indent_lines(RIGHT)}", verdicts.NO_ANSWER),
    "a nested function": (f"def g():\n{indent_lines(RIGHT)}", verdicts.NO_ANSWER),
    "prose": ("I cannot do this.", verdicts.UNPARSABLE),
    "blank": (" \n\n", verdicts.NO_ANSWER),
    "an empty block": ("```python\n```", verdicts.NO_ANSWER),
    "cut before the answer": ("def f(x):\n    y = 2 * x\n    retur", verdicts.CRASHED),
    "an import that fails": (f"import nothing_of_this_name\n{RIGHT}", verdicts.CRASHED),
    "a file that is read": (f"{RIGHT}\nimport os\nos.listdir('/')", verdicts.FORBIDDEN),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_completion_gets_its_reason(grader, double, case):
    completion, reason = REFUSED[case]
    assert grader.grade(double, completion).reason == reason


USES_OF_NUMPY = {
    "a number of numpy's": "import numpy as np\ndef f(x): return np.int64(2) * x if x < 9 else 2 * x",
    "an import in the function": "def f(x):\n    from numpy.linalg import det\n    return round(det([[2]])) * x",
    "a list of an array": "import numpy\ndef f(x): return numpy.array([2 * x], dtype=object).tolist()[0]",
    "from a block of its own": fence_each("import numpy as np", "def f(x): return int(np.prod([2, 1])) * x"),
}  # fmt: skip


@pytest.mark.parametrize("case", USES_OF_NUMPY)
def test_numpy_can_be_imported(grader, double, case):
    assert grader.grade(double, USES_OF_NUMPY[case]).reason == verdicts.PASSED
    wrong_program = USES_OF_NUMPY[case].replace("2", "3")
    assert grader.grade(double, wrong_program).reason == verdicts.WRONG_ANSWER


def test_pandas_can_be_imported(grader, layer, double):
    if layer == "filters":
        pytest.skip("a user without rights may not read all of Python's library")
    program = "import pandas as pd\ndef f(x): return pd.Series([x, x], dtype=object).sum()"
    assert grader.grade(double, program).reason == verdicts.PASSED


def test_random_numbers_of_numpy_repeat(grader, double):
    program = "import numpy as np\ndef f(): return np.random.random(3).tolist()"
    problem = double.model_copy(
        update={"canonical_solution": program, "base_input": [[]], "plus_input": []}
    )
    assert grader.grade(problem, program).reason == verdicts.PASSED


def test_numpy_is_not_imported_unless_it_is_needed(grader, double):
    program = "import sys\ndef f(x): return 2 * x if 'num' + 'py' not in sys.modules else 0"
    assert grader.grade(double, program).reason == verdicts.PASSED


def test_an_array_does_not_equal_a_list(grader, double):
    """EvalPlus refuses it too, because the comparison with a list has no single truth value."""
    problem = double.model_copy(update={"canonical_solution": "def f(x): return [x, 2]"})
    program = "import numpy as np\ndef f(x): return np.array([x, 2])"
    assert grader.grade(problem, program).reason == verdicts.WRONG_ANSWER
