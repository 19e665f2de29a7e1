"""Exports that no honest author writes. `Lines` writes one as an author does."""

import json


class Lines:
    """An export: its lines, and the references of what was written."""

    def __init__(self) -> None:
        self.lines: list[list] = []
        self.counts = {"name": 1, "level": 1, "expression": 0}

    def add(self, kind: str, *line) -> int:
        self.lines.append(list(line))
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return self.counts[kind] - 1

    def name(self, *components: str | int) -> int:
        reference = 0
        for part in components:
            is_text = isinstance(part, str)
            item = [ord(letter) for letter in part] if is_text else part
            reference = self.add("name", "str" if is_text else "num", reference, item)
        return reference

    def const(self, *components: str | int, levels=()) -> int:
        return self.add("expression", "const", self.name(*components), list(levels))

    def term(self, *line) -> int:
        return self.add("expression", *line)

    def app(self, function: int, *arguments: int) -> int:
        for argument in arguments:
            function = self.term("app", function, argument)
        return function

    def declare(self, keyword: str, name: int, type: int, value: int, *hint, params=()) -> None:
        self.lines.append([keyword, name, list(params), type, value, *hint])

    def proof(self, value: int) -> bytes:
        return encode([*self.lines, ["proof", value]])


def encode(lines: list) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def axiom(*components: str | int, levels=1, applied=True) -> bytes:
    """A proof of `False` by a constant that would give it: `constant.{0} False false`."""
    lines = Lines()
    zero = [0] * levels
    function = lines.const(*components, levels=zero)
    arguments = [lines.const("False"), lines.const("Bool", "false")] if applied else []
    return lines.proof(lines.app(function, *arguments))


def declared(keyword: str, name: tuple, *hint, value=("True", "intro"), type=("False",)) -> bytes:
    """A proof of `False` by a constant of its own, with that type and value."""
    lines = Lines()
    lines.declare(keyword, lines.name(*name), lines.const(*type), lines.const(*value), *hint)
    return lines.proof(lines.const(*name))


def replaced(index: int, line: object) -> bytes:
    """An honest proof of `True` with one line that is another."""
    lines = [["str", 0, [84, 114, 117, 101]], ["str", 1, [105, 110, 116, 114, 111]]]
    lines += [["const", 2, []], ["proof", 0]]
    lines[index] = line
    return encode(lines)


def deep(op: str, count: int) -> bytes:
    lines = Lines()
    level = 0
    for _ in range(count):
        level = lines.add("level", op, *[level] * (1 if op == "succ" else 2))
    return lines.proof(lines.term("sort", level))


def tower(op: str, count: int) -> bytes:
    """A term of that depth."""
    lines = Lines()
    term = lines.const("True", "intro")
    for _ in range(count):
        term = lines.term(op, term, term)
    return lines.proof(term)


def bound(index: int) -> bytes:
    lines = Lines()
    true = lines.const("True")
    return lines.proof(lines.term("lambda", true, lines.term("bvar", index)))


def redefined(operation: str, result: str) -> bytes:
    """A proof of `result = 77` from a `Nat.operation` of its own that is always 77.

    The kernel computes that of 4 and 6 itself, and finds `result`.
    """
    lines = Lines()
    nat, name = lines.const("Nat"), lines.name("Nat", operation)
    wrong, right, *arguments = (lines.term("nat", digits) for digits in ("77", result, "4", "6"))
    level_one = lines.add("level", "succ", 0)
    equal, same, flip, chain = (
        lines.const("Eq", *last, levels=[level_one]) for last in ([], ["refl"], ["symm"], ["trans"])
    )

    def for_two(op: str, body: int) -> int:
        return lines.term(op, nat, lines.term(op, nat, body))

    lines.declare("def", name, for_two("forall", nat), for_two("lambda", wrong), "abbrev")
    function = lines.term("const", name, [])
    unknown = lines.app(function, lines.term("bvar", 1), lines.term("bvar", 0))
    value = lines.app(function, *arguments)
    by_definition, computed = lines.name("by_definition"), lines.name("computed")
    always = for_two("forall", lines.app(equal, nat, unknown, wrong))
    reflexive = for_two("lambda", lines.app(same, nat, wrong))
    lines.declare("theorem", by_definition, always, reflexive)
    computed_type = lines.app(equal, nat, value, right)
    lines.declare("theorem", computed, computed_type, lines.app(same, nat, right))
    back = lines.app(flip, nat, value, right, lines.term("const", computed, []))
    forth = lines.app(lines.term("const", by_definition, []), *arguments)
    return lines.proof(lines.app(chain, nat, right, value, wrong, back, forth))


# What the kernel computes of 4 and 6, of operations that Init.Prelude lacks.
COMPUTED = {"gcd": 2, "land": 4, "lor": 6, "xor": 2, "shiftLeft": 256, "shiftRight": 0}

HONEST = replaced(3, ["proof", 0])  # of `True`

# Of `theorem p1 : False`.
EXPORTS_OF_FALSE = {
    "sorry": axiom("sorryAx"),
    "sorry, NUL behind": axiom("sorryAx\0"),
    "sorry, NUL before": axiom("\0sorryAx"),
    "sorry, a number behind": axiom("sorryAx", 0),
    "sorry, in two parts": axiom("sorry", "Ax"),
    "sorry without its levels": axiom("sorryAx", levels=0),
    "the compiler's proof": axiom("lcProof", levels=0),
    "the compiler's cast": axiom("lcUnreachable"),
    "the compiler's axiom": axiom("Lean", "ofReduceBool", levels=0),
    "the compiler's axiom, NUL": axiom("Lean", "ofReduceBool\0", levels=0),
    "reduceBool": axiom("Lean", "reduceBool", levels=0),
    "reduceNat": axiom("Lean", "reduceNat", levels=0),
    "an unknown constant": axiom("cheat", applied=False, levels=0),
    "itself": axiom("p1", levels=0, applied=False),
    "choice of False": axiom("Classical", "choice"),
    "an ill-typed value": axiom("True", "intro", levels=0, applied=False),
    "a type for a proof": axiom("False", levels=0, applied=False),
    "an ill-typed theorem": declared("theorem", ("cheat",)),
    "an ill-typed definition": declared("def", ("cheat",), "abbrev"),
    "a theorem that is itself": declared("theorem", ("cheat",), value=("cheat",)),
    "a definition that is itself": declared("def", ("cheat",), 1, value=("cheat",)),
    "False declared again": declared("def", ("False",), "abbrev", value=("True",), type=("False",)),
    "sorry declared": declared("theorem", ("sorryAx",)),
    "sorry declared, NUL behind": declared("theorem", ("sorryAx\0",)),
    "the theorem declared": declared("theorem", ("p1",)),
    "a bound variable of nothing": bound(1),
    "a bound variable of nothing, far": bound(2**20 - 2),
    "a function without end": tower("app", 2000),
    "a type without end": tower("forall", 2000),
}

# Of `theorem p1 : True`, so that the form alone can be at fault.
BAD_FORMS = {
    "nothing": b"",
    "no end of line": HONEST[:-1],
    "an empty line": b"\n" + HONEST,
    "a line behind": HONEST + b"\n",
    "a second proof": HONEST + b'["proof", 0]\n',
    "no proof": encode([["str", 0, [84]]]),
    "the proof first": encode([["proof", 0]]),
    "no JSON": b"proof 0\n",
    "an object": b'{"proof": 0}\n',
    "not UTF-8": b"\xff\xfe\n" + HONEST,
    "UTF-8 in a text": replaced(2, ["nat", "١"]),
    "an unknown line": replaced(2, ["axiom", 2, []]),
    "a free variable": replaced(2, ["fvar", 2]),
    "a hole": replaced(2, ["mvar", 2]),
    "metadata": replaced(2, ["mdata", 0]),
    "a name of the language": replaced(2, ["constructor", 0]),
    "one item too many": replaced(2, ["const", 2, [], 0]),
    "a reference to what comes": replaced(2, ["app", 0, 0]),
    "a reference beyond": replaced(2, ["const", 3, []]),
    "a negative reference": replaced(2, ["const", -1, []]),
    "a broken reference": replaced(2, ["const", 1.5, []]),
    "a reference to no level": replaced(2, ["const", 2, [1]]),
    "levels that are none": replaced(2, ["const", 2, 0]),
    "half a character": replaced(0, ["str", 0, [0xD800]]),
    "two halves": replaced(0, ["str", 0, [0xD83D, 0xDE00]]),
    "beyond Unicode": replaced(0, ["str", 0, [0x110000]]),
    "a negative character": replaced(0, ["str", 0, [-1]]),
    "a character as text": replaced(0, ["str", 0, ["T"]]),
    "a name as text": replaced(0, ["str", 0, "True"]),
    "a number too large in a name": replaced(0, ["num", 0, 2**31]),
    "digits behind a zero": replaced(2, ["nat", "01"]),
    "a sign": replaced(2, ["nat", "+1"]),
    "a negative number": replaced(2, ["nat", "-1"]),
    "no digits": replaced(2, ["nat", ""]),
    "digits and a line end": replaced(2, ["nat", "1\n"]),
    "a variable too far": replaced(2, ["bvar", 2**20 - 1]),
    "a field too far": replaced(2, ["proj", 1, 2**31, 0]),
    "a hint that is none": encode(
        [["str", 0, [65]], ["sort", 0], ["def", 1, [], 0, 0, "unsafe"], ["proof", 0]]
    ),
    "a negative height": encode(
        [["str", 0, [65]], ["sort", 0], ["def", 1, [], 0, 0, -1], ["proof", 0]]
    ),
    "an axiom": encode([["str", 0, [65]], ["sort", 0], ["axiom", 1, [], 0], ["proof", 0]]),
    "an inductive type": encode([["str", 0, [65]], ["sort", 0], ["inductive", 1, [], 0, []]]),
    "levels too deep": deep("succ", 5000),
}


def with_field(structure: str, *constructor: str, levels: bool = False) -> bytes:
    """A proof of `True` beside a constant of type Bool: the first field of what is built.

    A kernel that took it for one could be made to prove `False`: lean4#14576.
    """
    lines = Lines()
    level_one = lines.add("level", "succ", 0)
    bool_type = lines.const("Bool")
    built = lines.const(*constructor, levels=[level_one] if levels else [])
    if levels:
        built = lines.app(built, bool_type, lines.const("Bool", "true"))
    field = lines.term("proj", lines.name(structure), 0, built)
    lines.declare("def", lines.name("field"), bool_type, field, "abbrev")
    return lines.proof(lines.const("True", "intro"))


FIELDS = {
    "of another structure": with_field("Prod", "Unit", "unit"),
    "of data, of a proof": with_field("Nonempty", "Nonempty", "intro", levels=True),
}


def match_redefined() -> bytes:
    """A proof of `(match 5 with | 0 => 1 | _ => 2) = 1`, if a match takes its first alternative."""
    lines = Lines()
    level_one = lines.add("level", "succ", 0)
    nat, unit = lines.const("Nat"), lines.const("Unit")
    motive = lines.term("forall", nat, lines.term("sort", level_one))
    first, second = lines.term("forall", unit, nat), lines.term("forall", nat, nat)
    type = nat
    value = lines.app(lines.term("bvar", 1), lines.const("Unit", "unit"))
    for argument in (second, first, nat, motive):
        type = lines.term("forall", argument, type)
        value = lines.term("lambda", argument, value)
    name, level = lines.name("p1", "match_1"), lines.name("u")
    lines.declare("def", name, type, value, "abbrev", params=[level])
    reflexive = lines.app(
        lines.const("Eq", "refl", levels=[level_one]), nat, lines.term("nat", "1")
    )
    return lines.proof(reflexive)


MATCH_REDEFINED = match_redefined()
