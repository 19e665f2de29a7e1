"""Units in answers.

A unit is one of measurement, or names things that are counted, such as apples. It is a set of names
with exponents: square feet per hour is {("ft", 2), ("h", -1)}. In answers `clean_latex` has put the
words of \\text{} in double quotes.
"""

import re
from collections import Counter

from latex import TRIGONOMETRIC_FUNCTIONS

Unit = frozenset[tuple[str, int]]

# Measures (units of measurement) and their other names. Any other word is a unit if the question
# asks "how many" of it, as in "how many apples".
MEASURES = {
    "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre",
    "km": "kilometer kilometre", "in": "inch", "ft": "foot feet", "yd": "yard", "mi": "mile",
    "mg": "milligram", "g": "gram", "kg": "kilogram", "oz": "ounce", "lb": "pound", "ton": "tonne",
    "ml": "milliliter millilitre", "l": "liter litre", "gal": "gallon", "qt": "quart", "pt": "pint",
    "s": "sec second", "min": "minute", "h": "hr hour", "day": "", "week": "", "month": "",
    "yr": "year", "degree": "deg \\degree", "radian": "rad", "percent": "% percentage",
    "dollar": "$ usd", "cent": "", "euro": "€", "sterling": "£", "yen": "¥", "rupee": "₹",
    "yuan": "", "peso": "", "franc": "", "unit": "",
}  # fmt: skip
RATES = {"mph": "miles per hour", "mpg": "miles per gallon"}
RATE_NAME = re.compile(rf"(?<![a-z])(?:{'|'.join(RATES)})(?![a-z])")
# Signs of currencies, which stand before or after a number, and words before the name by which an
# amount is divided: $5 an hour is 5 dollars per hour.
CURRENCIES = {
    "\\$": "dollar", "€": "euro", "\\euro": "euro", "\\texteuro": "euro", "£": "sterling",
    "\\pounds": "sterling", "\\textsterling": "sterling", "¥": "yen", "\\yen": "yen", "₹": "rupee",
}  # fmt: skip
CURRENCY_PATTERN = "|".join(map(re.escape, CURRENCIES))
DIVIDING_WORDS = ("per", "every", "each", "a", "an")
POWER_WORDS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
NO_UNIT: Unit = frozenset()
PERCENT: Unit = frozenset({("percent", 1)})
DEGREES: Unit = frozenset({("degree", 1)})


def stem_word(word: str) -> str:
    """Return a word without a final es, s or e.

    So box and boxes have the same stem, and so have mile and miles.
    """
    return re.sub(r"(?<=..)(?:es|s|e)$", "", word)


MEASURES_BY_STEM = {  # measures by the stems of their names
    stem_word(name): measure
    for measure, names in MEASURES.items()
    for name in (measure, *names.split())
}
# The names of measures as a regular expression, the longest first.
MEASURE_PATTERN = "|".join(
    sorted((name for name in MEASURES_BY_STEM if name.isalpha() and len(name) > 1), key=len)[::-1]
)
# Words for numbers that may follow "how many", and words that are never units. Only those for
# numbers have a plural: toes and notes are units, although "to" and "not" are none.
MAGNITUDE_WORDS = "dozen hundred thousand million billion"
NUMBER_WORDS = f"{MAGNITUDE_WORDS} half third fourth fifth sixth eighth tenth hundredth".split(" ")
NON_UNIT_WORDS = (
    "or and not to but if than less minus plus over by halves negative factorial many different"
)
NON_UNIT_WORDS = frozenset(
    [*NON_UNIT_WORDS.split(" "), *NUMBER_WORDS, *(f"{word}s" for word in NUMBER_WORDS)]
)
# A word that may be part of a unit; a unit at the end of a text; the parts of a unit.
UNIT_WORD = (
    r'"[a-z]+"|\\?%|\\degree|\\\$|[€£¥₹]'
    rf"|(?:(?<=[\d\s}}])|(?<=\"/))(?:{MEASURE_PATTERN})(?:e?s)?(?![a-zA-Z])|(?<=\s)[a-z]{{3,}}"
)
# A slash, or "a" as in "dollars a day", stands between two words.
UNIT_WORDS = (
    rf"(?:\s*(?:(?>{UNIT_WORD})(?:\s*\^\{{[23]\}})?"
    r'|(?<=[a-z"])\s*/(?=\s*[a-z"])|(?<=")\s*a(?=\s*")))+'
)
UNIT_AT_END = re.compile(rf"{UNIT_WORDS}\s*$")
UNIT_PART = re.compile(r"[a-z]+|%|\\degree|[$€£¥₹]|/|(?<=\^\{)\d")
# An amount of money that is divided, as in $15 per hour.
DIVIDED_MONEY = re.compile(
    rf'({CURRENCY_PATTERN}) *([\d.]+)(?= *(?:"(?:per|every|each|an)"|a "|/ *(?:"|[a-z]{{3,}})))'
)


def split_unit(
    text: str, question_words: frozenset[str], names: frozenset[str]
) -> tuple[str, Unit]:
    """Split LaTeX from `clean_latex` into a number, or a list or set of numbers, and its unit.

    In a list or set either each number or only the last one may have the unit. A word that is
    neither in quotes nor a word of the question is a unit only if it is a measure. In a question
    about `names` k and m, 6km is a product.
    """
    if elements := re.fullmatch(r"\\\{((?:(?!\\[{}])[^()\[\]])*)\\\}", text):
        numbers, unit = split_unit(elements[1], question_words, names)
        return f"\\{{{numbers}\\}}", unit
    parts = split_parts(text)
    if len(parts) == 1:
        return split_number(text, question_words, names)
    pairs = [split_number(part, question_words, names) for part in parts[::2]]
    numbers, units = zip(*pairs, strict=True)
    # All numbers have the same unit, or only the last one has a unit.
    if {*units[:-1]} <= {units[-1]} or {*units[:-1]} == {NO_UNIT}:
        parts[::2] = numbers
        return "".join(parts), units[-1]
    return text, NO_UNIT


def split_parts(text: str) -> list[str]:
    """Return the elements of a list without brackets, with the separators between them."""
    return [text] if re.search(r"[(\[]|\\\{", text) else re.split(r'([,;]|"and"|"or")', text)


def split_number(
    text: str, question_words: frozenset[str], names: frozenset[str]
) -> tuple[str, Unit]:
    """Split one number from its unit; see `split_unit`."""
    text = write_divided_money_in_words(text)
    unquoted = re.findall(r'(?<![\\"a-z])[a-z]{3,}(?!["a-z])', text)
    if any(
        word not in question_words and stem_word(word) not in MEASURES_BY_STEM for word in unquoted
    ):
        return text, NO_UNIT
    letters = re.search(r'(?<![\\"a-zA-Z])[a-zA-Z]+\s*$', text)
    word = letters[0].strip() if letters else ""
    if word and word not in question_words and set(word) <= names:
        return text, NO_UNIT
    # The sign of a currency comes before the number, which is the last side in x = \$15.
    left_sides, equal, side = text.rpartition("=")
    if sign := re.match(rf" *-? *({CURRENCY_PATTERN})", side):
        number = re.sub(CURRENCY_PATTERN, "", side, count=1)
        return left_sides + equal + number, frozenset({(CURRENCIES[sign[1]], 1)})
    unit_match = UNIT_AT_END.search(text)
    before = text[: unit_match.start()] if unit_match else ""
    # The unit must follow a number or a formula, and no function: in \sin m, m is a variable.
    if not re.search(r"[\w)}\]]\s*$", before) or re.search(
        rf"\\(?:{TRIGONOMETRIC_FUNCTIONS})[^()]*$", before
    ):
        return text, NO_UNIT
    unit = read_unit(unit_match[0])
    return (text, NO_UNIT) if unit is None else (before, unit)


def write_divided_money_in_words(text: str) -> str:
    """Return LaTeX with 15 dollars per hour in place of $15 per hour."""
    return DIVIDED_MONEY.sub(lambda money: f'{money[2]} "{CURRENCIES[money[1]]}"', text)


def read_unit(words: str) -> Unit | None:
    """Return the unit that these words name.

    The result is None if they name no unit, if one of them is never part of a unit, or if two of
    them mean the same.
    """
    powers: Counter[str] = Counter()  # by name; below 0 after "per"
    sign, power, last_name = 1, 1, ""
    parts = UNIT_PART.findall(RATE_NAME.sub(lambda name: RATES[name[0]], words))
    for index, part in enumerate(parts, 1):
        if part in ("/", *DIVIDING_WORDS) and index < len(parts):
            sign = -1
        elif part in ("more", "fewer") or (part == "old" and last_name == "yr"):
            continue  # 5 more years are 5 years, and so are 5 years old
        elif part.isdecimal() or (part in POWER_WORDS and is_power_before(parts[index:])):
            # "squared" and ^{2} follow a measure, "square" comes before it.
            factor = POWER_WORDS.get(part) or int(part)
            if last_name and (part.isdecimal() or part.endswith("ed")):
                powers[last_name] *= factor
            else:
                power = factor
        elif part in NON_UNIT_WORDS or get_unit_name(part) in powers:
            return None
        else:
            last_name = get_unit_name(part)
            powers[last_name] += sign * power
            power = 1
    return frozenset(powers.items()) or None


def is_power_before(parts: list[str]) -> bool:
    """Return whether "square" is a power before these parts of a unit, and no thing's shape.

    Only measures have powers: square tables are tables.
    """
    return not parts or not parts[0].isalpha() or get_unit_name(parts[0]) in MEASURES


def get_unit_name(word: str) -> str:
    """Return the name of the measure that a word names, or the stem of any other word."""
    return MEASURES_BY_STEM.get(stem_word(word), stem_word(word))
