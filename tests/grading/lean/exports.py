"""Exports of proofs that an unmodified author never writes, in the format in which it writes them.

An author is the Lean process that elaborates a proof. It exports the proof as lines of JSON, which
the judge, a second Lean process, reads and checks with Lean's kernel.
"""

import json


class ExportBuilder:
    """Builds the lines of an export.

    Methods that add a name, a level or an expression return its number, by which later lines refer to it.
    """

    def __init__(self) -> None:
        self.lines: list[list] = []
        self.counts = {"name": 1, "level": 1, "expression": 0}

    def add_line(self, kind: str, *line) -> int:
        self.lines.append(list(line))
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return self.counts[kind] - 1

    def add_name(self, *components: str | int) -> int:
        reference = 0
        for part in components:
            is_text = isinstance(part, str)
            item = [ord(letter) for letter in part] if is_text else part
            reference = self.add_line("name", "str" if is_text else "num", reference, item)
        return reference

    def add_constant(self, *components: str | int, levels=()) -> int:
        return self.add_line("expression", "const", self.add_name(*components), list(levels))

    def add_term(self, *line) -> int:
        return self.add_line("expression", *line)

    def add_application(self, function: int, *arguments: int) -> int:
        for argument in arguments:
            function = self.add_term("app", function, argument)
        return function

    def add_declaration(
        self, keyword: str, name: int, type: int, value: int, *hint, params=()
    ) -> None:
        self.lines.append([keyword, name, list(params), type, value, *hint])

    def encode_proof(self, value: int) -> bytes:
        return encode_lines([*self.lines, ["proof", value]])


def encode_lines(lines: list) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def apply_false_constant(*components: str | int, levels=1, applied=True) -> bytes:
    """Return a proof of `False` by a constant that would prove it: `constant.{0} False false`."""
    builder = ExportBuilder()
    zero = [0] * levels
    function = builder.add_constant(*components, levels=zero)
    arguments = (
        [builder.add_constant("False"), builder.add_constant("Bool", "false")] if applied else []
    )
    return builder.encode_proof(builder.add_application(function, *arguments))


def prove_by_declaration(
    keyword: str, name: tuple, *hint, value=("True", "intro"), type=("False",)
) -> bytes:
    """Return a proof of `False` by a constant that the export declares with this type and value.

    `type` and `value` are the components of the names of constants.
    """
    builder = ExportBuilder()
    builder.add_declaration(
        keyword,
        builder.add_name(*name),
        builder.add_constant(*type),
        builder.add_constant(*value),
        *hint,
    )
    return builder.encode_proof(builder.add_constant(*name))


def replace_line(index: int, line: object) -> bytes:
    """Return an honest proof of `True` with one line replaced."""
    lines = [["str", 0, [84, 114, 117, 101]], ["str", 1, [105, 110, 116, 114, 111]]]
    lines += [["const", 2, []], ["proof", 0]]
    lines[index] = line
    return encode_lines(lines)


def nest_levels(operator: str, count: int) -> bytes:
    """Return a proof that is a sort, whose universe level nests an operator this often."""
    builder = ExportBuilder()
    level = 0
    for _ in range(count):
        level = builder.add_line("level", operator, *[level] * (1 if operator == "succ" else 2))
    return builder.encode_proof(builder.add_term("sort", level))


def nest_terms(operator: str, count: int) -> bytes:
    """Return a proof that is a term which nests an operator this often."""
    builder = ExportBuilder()
    term = builder.add_constant("True", "intro")
    for _ in range(count):
        term = builder.add_term(operator, term, term)
    return builder.encode_proof(term)


def use_bound_variable(index: int) -> bytes:
    """Return a proof that is the term `fun _ : True => #index`, with a bound variable of this number."""
    builder = ExportBuilder()
    true = builder.add_constant("True")
    return builder.encode_proof(builder.add_term("lambda", true, builder.add_term("bvar", index)))


def redefine_operation(operation: str, result: str) -> bytes:
    """Return a proof of `result = 77`, with a definition of `Nat.<operation>` that always returns 77.

    The kernel computes the operation on 4 and 6 by its own code, and gets `result`.
    """
    builder = ExportBuilder()
    nat, name = builder.add_constant("Nat"), builder.add_name("Nat", operation)
    wrong, right, *arguments = (
        builder.add_term("nat", digits) for digits in ("77", result, "4", "6")
    )
    level_one = builder.add_line("level", "succ", 0)
    eq, refl, symm, trans = (
        builder.add_constant("Eq", *name_parts, levels=[level_one])
        for name_parts in ([], ["refl"], ["symm"], ["trans"])
    )

    def bind_two(operator: str, body: int) -> int:
        return builder.add_term(operator, nat, builder.add_term(operator, nat, body))

    builder.add_declaration(
        "def", name, bind_two("forall", nat), bind_two("lambda", wrong), "abbrev"
    )
    function = builder.add_term("const", name, [])
    unknown = builder.add_application(
        function, builder.add_term("bvar", 1), builder.add_term("bvar", 0)
    )
    value = builder.add_application(function, *arguments)
    by_definition, computed = builder.add_name("by_definition"), builder.add_name("computed")
    always = bind_two("forall", builder.add_application(eq, nat, unknown, wrong))
    reflexive = bind_two("lambda", builder.add_application(refl, nat, wrong))
    builder.add_declaration("theorem", by_definition, always, reflexive)
    computed_type = builder.add_application(eq, nat, value, right)
    builder.add_declaration(
        "theorem", computed, computed_type, builder.add_application(refl, nat, right)
    )
    # right = value by `computed`, and value = wrong by `by_definition`; so right = wrong.
    right_is_value = builder.add_application(
        symm, nat, value, right, builder.add_term("const", computed, [])
    )
    value_is_wrong = builder.add_application(
        builder.add_term("const", by_definition, []), *arguments
    )
    return builder.encode_proof(
        builder.add_application(trans, nat, right, value, wrong, right_is_value, value_is_wrong)
    )


# The kernel's results for 4 and 6, by operation; Init.Prelude lacks these operations.
COMPUTED = {"gcd": 2, "land": 4, "lor": 6, "xor": 2, "shiftLeft": 256, "shiftRight": 0}

HONEST = replace_line(3, ["proof", 0])  # a proof of `True`

# Exports for `theorem p1 : False`.
EXPORTS_OF_FALSE = {
    "sorry": apply_false_constant("sorryAx"),
    "sorry, NUL after it": apply_false_constant("sorryAx\0"),
    "sorry, NUL before it": apply_false_constant("\0sorryAx"),
    "sorry, a number after it": apply_false_constant("sorryAx", 0),
    "sorry, in two parts": apply_false_constant("sorry", "Ax"),
    "sorry without its levels": apply_false_constant("sorryAx", levels=0),
    "the compiler's proof": apply_false_constant("lcProof", levels=0),
    "the compiler's cast": apply_false_constant("lcUnreachable"),
    "the compiler's axiom": apply_false_constant("Lean", "ofReduceBool", levels=0),
    "the compiler's axiom, NUL": apply_false_constant("Lean", "ofReduceBool\0", levels=0),
    "reduceBool": apply_false_constant("Lean", "reduceBool", levels=0),
    "reduceNat": apply_false_constant("Lean", "reduceNat", levels=0),
    "an unknown constant": apply_false_constant("cheat", applied=False, levels=0),
    "itself": apply_false_constant("p1", levels=0, applied=False),
    "choice of False": apply_false_constant("Classical", "choice"),
    "an ill-typed value": apply_false_constant("True", "intro", levels=0, applied=False),
    "a type for a proof": apply_false_constant("False", levels=0, applied=False),
    "an ill-typed theorem": prove_by_declaration("theorem", ("cheat",)),
    "an ill-typed definition": prove_by_declaration("def", ("cheat",), "abbrev"),
    "a theorem that is itself": prove_by_declaration("theorem", ("cheat",), value=("cheat",)),
    "a definition that is itself": prove_by_declaration("def", ("cheat",), 1, value=("cheat",)),
    "False declared again": prove_by_declaration(
        "def", ("False",), "abbrev", value=("True",), type=("False",)
    ),
    "sorry declared": prove_by_declaration("theorem", ("sorryAx",)),
    "sorry declared, NUL after it": prove_by_declaration("theorem", ("sorryAx\0",)),
    "the theorem declared": prove_by_declaration("theorem", ("p1",)),
    "a bound variable of nothing": use_bound_variable(1),
    "a bound variable of nothing, far": use_bound_variable(2**20 - 2),
    "a function without end": nest_terms("app", 2000),
    "a type without end": nest_terms("forall", 2000),
}

# Exports for `theorem p1 : True`, which is true, so that only the form of the export can be wrong.
BAD_FORMS = {
    "nothing": b"",
    "no end of line": HONEST[:-1],
    "an empty line at the beginning": b"\n" + HONEST,
    "an empty line at the end": HONEST + b"\n",
    "a second proof": HONEST + b'["proof", 0]\n',
    "no proof": encode_lines([["str", 0, [84]]]),
    "the proof first": encode_lines([["proof", 0]]),
    "a line that is not JSON": b"proof 0\n",
    "an object": b'{"proof": 0}\n',
    "not UTF-8": b"\xff\xfe\n" + HONEST,
    "UTF-8 in a text": replace_line(2, ["nat", "١"]),
    "an unknown line": replace_line(2, ["axiom", 2, []]),
    "a free variable": replace_line(2, ["fvar", 2]),
    "a hole": replace_line(2, ["mvar", 2]),
    "metadata": replace_line(2, ["mdata", 0]),
    "a name of the language": replace_line(2, ["constructor", 0]),
    "one item too many": replace_line(2, ["const", 2, [], 0]),
    "a reference to a later line": replace_line(2, ["app", 0, 0]),
    "a reference beyond the last line": replace_line(2, ["const", 3, []]),
    "a negative reference": replace_line(2, ["const", -1, []]),
    "a broken reference": replace_line(2, ["const", 1.5, []]),
    "a reference to no level": replace_line(2, ["const", 2, [1]]),
    "a number in place of levels": replace_line(2, ["const", 2, 0]),
    "half a character": replace_line(0, ["str", 0, [0xD800]]),
    "two halves": replace_line(0, ["str", 0, [0xD83D, 0xDE00]]),
    "beyond Unicode": replace_line(0, ["str", 0, [0x110000]]),
    "a negative character": replace_line(0, ["str", 0, [-1]]),
    "a character as text": replace_line(0, ["str", 0, ["T"]]),
    "a name as text": replace_line(0, ["str", 0, "True"]),
    "a number too large in a name": replace_line(0, ["num", 0, 2**31]),
    "digits after a zero": replace_line(2, ["nat", "01"]),
    "a sign": replace_line(2, ["nat", "+1"]),
    "a negative number": replace_line(2, ["nat", "-1"]),
    "no digits": replace_line(2, ["nat", ""]),
    "digits and a line end": replace_line(2, ["nat", "1\n"]),
    "a variable too far": replace_line(2, ["bvar", 2**20 - 1]),
    "a field too far": replace_line(2, ["proj", 1, 2**31, 0]),
    "an unknown hint": encode_lines(
        [["str", 0, [65]], ["sort", 0], ["def", 1, [], 0, 0, "unsafe"], ["proof", 0]]
    ),
    "a negative height": encode_lines(
        [["str", 0, [65]], ["sort", 0], ["def", 1, [], 0, 0, -1], ["proof", 0]]
    ),
    "an axiom": encode_lines([["str", 0, [65]], ["sort", 0], ["axiom", 1, [], 0], ["proof", 0]]),
    "an inductive type": encode_lines([["str", 0, [65]], ["sort", 0], ["inductive", 1, [], 0, []]]),
    "levels too deep": nest_levels("succ", 5000),
}


def project_field(structure: str, *constructor: str, levels: bool = False) -> bytes:
    """Return a proof of `True` and a definition of type Bool that projects a field that does not exist.

    A kernel that accepted the projection could be made to prove `False`: lean4#14576.
    """
    builder = ExportBuilder()
    level_one = builder.add_line("level", "succ", 0)
    bool_type = builder.add_constant("Bool")
    built = builder.add_constant(*constructor, levels=[level_one] if levels else [])
    if levels:
        built = builder.add_application(built, bool_type, builder.add_constant("Bool", "true"))
    field = builder.add_term("proj", builder.add_name(structure), 0, built)
    builder.add_declaration("def", builder.add_name("field"), bool_type, field, "abbrev")
    return builder.encode_proof(builder.add_constant("True", "intro"))


# Projections of fields that do not exist.
FIELDS = {
    "of another structure": project_field("Prod", "Unit", "unit"),
    "of data, of a proof": project_field("Nonempty", "Nonempty", "intro", levels=True),
}


def redefine_match() -> bytes:
    """Return a proof of `(match 5 with | 0 => 1 | _ => 2) = 1`, which is false.

    Lean compiles the `match` of theorem p1 to a function `p1.match_1`. The export declares one that
    always takes the first case.
    """
    builder = ExportBuilder()
    level_one = builder.add_line("level", "succ", 0)
    nat, unit = builder.add_constant("Nat"), builder.add_constant("Unit")
    motive = builder.add_term("forall", nat, builder.add_term("sort", level_one))
    first, second = builder.add_term("forall", unit, nat), builder.add_term("forall", nat, nat)
    type = nat
    value = builder.add_application(
        builder.add_term("bvar", 1), builder.add_constant("Unit", "unit")
    )
    for argument in (second, first, nat, motive):
        type = builder.add_term("forall", argument, type)
        value = builder.add_term("lambda", argument, value)
    name, level = builder.add_name("p1", "match_1"), builder.add_name("u")
    builder.add_declaration("def", name, type, value, "abbrev", params=[level])
    reflexive = builder.add_application(
        builder.add_constant("Eq", "refl", levels=[level_one]), nat, builder.add_term("nat", "1")
    )
    return builder.encode_proof(reflexive)


MATCH_REDEFINED = redefine_match()
