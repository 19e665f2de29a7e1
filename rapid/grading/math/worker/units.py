"""Units: in answers, and those that a question asks for or mentions.

A unit is one of measurement, or names things that are counted, such as apples. It is a set of names
with exponents: square feet per hour is {("ft", 2), ("h", -1)}. In answers `clean_latex` has put the
words of \\text{} in double quotes.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from latex import TRIGONOMETRIC_FUNCTIONS
from question import FINDING_VERBS, WRITING_VERBS, find_asked_formulas, find_request

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
    "dollar": "$", "cent": "", "unit": "",
}  # fmt: skip
RATES = {"mph": "miles per hour", "mpg": "miles per gallon"}
RATE_NAME = re.compile("|".join(RATES))
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
# Words for numbers that may follow "how many", and words that are never units.
MAGNITUDE_WORDS = "dozen hundred thousand million billion"
NON_UNIT_WORDS = (
    f"{MAGNITUDE_WORDS} or and not to but if than less minus plus over by half halves third fourth "
    "fifth sixth eighth tenth hundredth negative factorial many different"
)
NON_UNIT_STEMS = frozenset(map(stem_word, NON_UNIT_WORDS.split(" ")))
# A word that may be part of a unit; a unit at the end of a text; the parts of a unit.
UNIT_WORD = (
    rf'"[a-z]+"|\\?%|\\degree|(?<=[\d\s}}])(?:{MEASURE_PATTERN})(?:e?s)?(?![a-zA-Z])'
    r"|(?<=\s)[a-z]{3,}"
)
UNIT_AT_END = re.compile(
    rf"(?:\s*(?:(?>{UNIT_WORD})(?:\s*\^\{{[23]\}})?|(?<=[a-z\"])\s*/(?=\s*[a-z\"])))+\s*$"
)
UNIT_PART = re.compile(r"[a-z]+|%|\\degree|\$|/|(?<=\^\{)\d")


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
    parts = re.split(r'([,;]|"and"|"or")', text)
    if len(parts) == 1 or re.search(r"[(\[]|\\\{", text):
        return split_number(text, question_words, names)
    pairs = [split_number(part, question_words, names) for part in parts[::2]]
    numbers, units = zip(*pairs, strict=True)
    # All numbers have the same unit, or only the last one has a unit.
    if {*units[:-1]} <= {units[-1]} or {*units[:-1]} == {NO_UNIT}:
        parts[::2] = numbers
        return "".join(parts), units[-1]
    return text, NO_UNIT


def split_number(
    text: str, question_words: frozenset[str], names: frozenset[str]
) -> tuple[str, Unit]:
    """Split one number from its unit; see `split_unit`."""
    # $15 per hour is 15 dollars per hour.
    text = re.sub(r'\\\$ *([\d.]+)(?= *(?:"per"|/ *"))', r'\1 "dollars"', text)
    unquoted = re.findall(r'(?<![\\"a-z])[a-z]{3,}(?!["a-z])', text)
    if any(
        word not in question_words and stem_word(word) not in MEASURES_BY_STEM for word in unquoted
    ):
        return text, NO_UNIT
    letters = re.search(r'(?<![\\"a-zA-Z])[a-zA-Z]+\s*$', text)
    word = letters[0].strip() if letters else ""
    if word and word not in question_words and set(word) <= names:
        return text, NO_UNIT
    # A dollar sign comes before the number, which is the last side in x = 5\cdot\$3 = \$15.
    if re.match(r" *-? *\\\$", text.rpartition("=")[2]):
        return text.replace("\\$", ""), frozenset({("dollar", 1)})
    unit_match = UNIT_AT_END.search(text)
    before = text[: unit_match.start()] if unit_match else ""
    # The unit must follow a number or a formula, and no function: in \sin m, m is a variable.
    if not re.search(r"[\w)}\]]\s*$", before) or re.search(
        rf"\\(?:{TRIGONOMETRIC_FUNCTIONS})[^()]*$", before
    ):
        return text, NO_UNIT
    unit = read_unit(unit_match[0])
    return (text, NO_UNIT) if unit is None else (before, unit)


def read_unit(words: str) -> Unit | None:
    """Return the unit that these words name.

    The result is None if they name no unit, if one of them is never part of a unit, or if two of
    them mean the same.
    """
    powers: Counter[str] = Counter()  # by name; below 0 after "per"
    sign, power, last_name = 1, 1, ""
    for part in UNIT_PART.findall(RATE_NAME.sub(lambda name: RATES[name[0]], words)):
        if part in ("per", "/"):
            sign = -1
        elif part in ("more", "fewer") or (part == "old" and last_name == "yr"):
            continue  # 5 more years are 5 years, and so are 5 years old
        elif part in POWER_WORDS or part.isdecimal():
            # "squared" and ^{2} follow a measure, "square" comes before it.
            factor = POWER_WORDS.get(part) or int(part)
            if last_name and (part.isdecimal() or part.endswith("ed")):
                powers[last_name] *= factor
            else:
                power = factor
        elif stem_word(part) in NON_UNIT_STEMS or get_unit_name(part) in powers:
            return None
        else:
            last_name = get_unit_name(part)
            powers[last_name] += sign * power
            power = 1
    return frozenset(powers.items()) or None


def get_unit_name(word: str) -> str:
    """Return the name of the measure that a word names, or the stem of any other word."""
    return MEASURES_BY_STEM.get(stem_word(word), stem_word(word))


# --- What a question asks for ---

# What follows "how many", plural nouns in it, and what follows other words before a unit. With a
# lookahead, (?=...), a match may begin inside another one.
COUNTED_THINGS = re.compile(r"\b(?:how many|number of) (?=((?:[a-z/-]+ ?){1,6}))")
PLURAL = re.compile(r".*[^s]s|.*feet|people|children|(?:wo)?men|percent")
NAMED_UNITS = re.compile(r"\b(?:what|nearest|as a|in) (?=((?:[a-z/-]+ ?){1,4}))")
# Words that end the description of what is counted.
END_WORDS = (
    "is are was were do does did can will would has have had must should there in with that who "
    "which to from express than"
)
END_WORDS = frozenset(END_WORDS.split(" "))
# Names of measures that also have other meanings. A question mentions such a measure only if the
# name follows a number, or if the question has the sign of the measure in MEASURE_MARKS.
AMBIGUOUS_NAMES = frozenset(
    ["g", "h", "l", "m", "s", "in", "second", "degree", "degrees", "dollar", "dollars"]
)
LENGTH_MEASURES = frozenset(["mm", "cm", "m", "km", "in", "ft", "yd", "mi"])
TIME_MEASURES = frozenset(["s", "min", "h", "day", "week", "month", "yr"])
# A question with a word of NON_ANGLE_WORDS does not ask for degrees. One with a RATE_REQUEST asks
# for a measure per time, and one that asks for a probability or ratio (PURE_NUMBER_WORDS) for no
# unit.
NON_ANGLE_WORDS = frozenset(["length", "distance", "area", "perimeter", "side", "radius", "volume"])
ANGLE_WORDS = frozenset(["angle", "angles", "degree", "degrees", "measure"])
RATE_REQUEST = re.compile(rf"\bhow fast\b|\b(?:what|{FINDING_VERBS})\b[^#]*\b(?:speed|rate)\b")
# A condition, of which a question asks nothing: "if the number of pens is 5, what do they cost?"
CONDITION = re.compile(rf"(?i)\bif\b[^?!]*?, *(?=(?:what|how|{FINDING_VERBS})\b)")
PURE_NUMBER_WORDS = re.compile(
    rf"\b(?:what|{FINDING_VERBS}|{WRITING_VERBS})(?: is| are| was)?(?: the| an?)?(?: [a-z]+)?"
    r" (?:probability|chance|fraction|ratio|proportion)\b"
)
# Stems of words after "how many" before things that are not the unit. After "how many pairs of
# shoes", pairs may be the unit, but not shoes.
MAGNITUDE_STEMS = frozenset(map(stem_word, ("pair", *MAGNITUDE_WORDS.split())))
# Signs by which a question mentions a measure.
MEASURE_MARKS = {"degree": r"\\circ|\u00b0|\bangles?\b|\d\$? degrees\b", "dollar": r"\\\$|\bdollar"}
PERCENT_REQUEST = re.compile(
    rf"(?:(?:what|{FINDING_VERBS})(?: is| was)?(?: the)?|how many|as a) percent|percentage"
    r"|percent (?:increase|decrease|change|error|profit|loss)"
)
# Words in a question whose answer may be a percentage or a number between 0 and 1.
SHARE_WORDS = re.compile(r"\b(?:probabilit|chance|percent|fraction|(?:pro)?portions?\b|likel)")


class AskedUnits(NamedTuple):
    """Units that a question asks for: measures, or things that it counts.

    For "how many red apples", `counted` has the stem of apples, and `words` those of red and
    apples.
    """

    measures: set[Unit]
    counted: set[str]
    words: set[str]


def find_asked_units(question: str) -> AskedUnits:
    """Return the units that a question asks for, as in "how many inches" and "in dollars"."""
    text = extract_prose(question).replace("how old", "how many years")
    measures, counted, words = set(), set(), set()
    for phrase in COUNTED_THINGS.findall(text):
        phrase = list(itertools.takewhile(lambda word: word not in END_WORDS, phrase.split()))
        words |= set(map(get_unit_name, phrase))
        if phrase and stem_word(phrase[0]) in MAGNITUDE_STEMS:
            counted = {"#", stem_word(phrase[0])}  # and no other word, even if that is none
            continue
        # Minutes in "more minutes", but not second in "second graders".
        plural_measures = [unit for name, unit in list_measures(phrase) if PLURAL.fullmatch(name)]
        if plural_measures:
            measures.add(plural_measures[0])
            continue
        # In "how many cups of red flour", both cups and flour may be the unit, and in "how many
        # books sold today" books, which is a plural. In "pages per day", days may not.
        for group in re.split(r"\bof\b", " ".join(phrase).partition(" per ")[0]):
            plurals = [word for word in group.split() if PLURAL.fullmatch(word)]
            counted |= set(map(get_unit_name, plurals or group.split()[-1:]))
    if not (measures or counted):
        for phrase in NAMED_UNITS.findall(text):
            if unit := read_unit(" ".join(itertools.takewhile(is_measure_word, phrase.split()))):
                measures.add(unit)
    not_counted = NON_UNIT_STEMS | MEASURES.keys()
    return AskedUnits(measures, counted - not_counted, words - NON_UNIT_STEMS)


def list_measures(words: Iterable[str]) -> list[tuple[str, Unit]]:
    """Return the units of measurement among words in a row, each with the words before "per".

    For "cost in dollars per square foot" these are the words "dollars".
    """
    texts = [
        " ".join(run) for is_measure, run in itertools.groupby(words, is_measure_word) if is_measure
    ]
    return [(text.partition(" per ")[0], unit) for text in texts if (unit := read_unit(text))]


def is_measure_word(word: str) -> bool:
    """Return whether a word can be part of the name of a measure, as in "square feet per hour"."""
    # Shorter names, such as m and in, are often other words, but not in m/s.
    parts = word.split("/")
    is_measure = len(word) > 2 and all(stem_word(part) in MEASURES_BY_STEM for part in parts)
    return is_measure or word in POWER_WORDS or word in RATES or word == "per"


def find_mentioned_measures(question: str) -> set[str]:
    """Return the measures that a question mentions, and always "unit".

    A question mentions a measure by its name, or by a sign of MEASURE_MARKS.
    """
    words = list_words(question) - AMBIGUOUS_NAMES
    after_numbers = re.findall(r"\d[ ~$]*(?:\\(?:text|mathrm)\{ *)?([a-z]+)\b", question.lower())
    measures = {
        MEASURES_BY_STEM[stem]
        for stem in map(stem_word, {*words, *after_numbers})
        if stem in MEASURES_BY_STEM
    }
    # Also m and s in "m/s", and miles and hours in "30mph".
    for _, unit in list_measures(extract_prose(question).split()):
        if min(power for _, power in unit) < 0:
            measures |= {name for name, _ in unit}
    marked = {name for name, mark in MEASURE_MARKS.items() if re.search(mark, question)}
    return measures | marked | {"unit"}


def list_words(question: str) -> frozenset[str]:
    """Return the words of a question in lower case, with those of \\text{} in its formulas."""
    in_text = " ".join(re.findall(r"\\(?:text|mbox|mathrm)\{([^{}]*)\}", question)).lower()
    return frozenset(re.findall("[a-z]+", f"{extract_prose(question)} {in_text}"))


def extract_prose(question: str) -> str:
    """Return the words of a question in lower case, with # for numbers, formulas and punctuation.

    Words that a hyphen or slash joins, as in "kilowatt-hours" and "m/s", are one word.
    """
    text = re.sub(r"(?<!\\)\$[^$]*(?<!\\)\$|\d[\d.,]*|[.,;:?!]", " # ", question).lower()
    return " ".join(re.findall(r"[a-z]+(?:[/-][a-z]+)*|#", text))


def asks_percent(question: str) -> bool:
    """Return whether a question asks for a number of percent."""
    return bool(PERCENT_REQUEST.search(extract_prose(find_request(question))))


def asks_share(question: str) -> bool:
    """Return whether a question asks for a share, such as a probability."""
    return bool(SHARE_WORDS.search(extract_prose(find_request(question))))


def is_unit_allowed(gold: Unit, answer: Unit, question: str) -> bool:
    """Return whether an answer may have this unit.

    - An answer may have the unit of the known answer, or none.
    - If the known answer has a measure of length, an answer may have "units" with the same
      exponent.
    - If the unit of the known answer is no measure, an answer may have as its unit another thing
      that the question counts.
    - If the known answer has no unit, an answer may have the unit that the question asks for, in
      the sentence that asks if it names one.
    - If that sentence names no unit, an answer may have a measure that the question
      mentions: squared if the question is about an area, cubed if the question is about a volume.
      It may not have degrees if the question is about lengths or trigonometric functions, no
      measure if it is about a probability or a ratio, and only one per time if it is about a rate.
    """
    if not answer or answer == gold:
        return True
    asked_units, names = find_asked_units(question), {name for name, _ in answer}
    is_counted = names <= asked_units.words and not names.isdisjoint(asked_units.counted)
    powers = sorted(power for _, power in answer)
    if gold:
        if {name for name, _ in gold} <= MEASURES.keys():
            is_length = {name for name, _ in gold} <= LENGTH_MEASURES
            # "units", or "square units", may replace a measure of length with the same power.
            return names == {"unit"} and is_length and powers == sorted(power for _, power in gold)
        return is_counted
    if is_counted:
        return True
    request = CONDITION.sub("", find_request(question))
    units_of_request = find_asked_units(request)
    if units_of_request.measures or units_of_request.counted:
        return answer in units_of_request.measures
    request_words = extract_prose(request).split()
    if PURE_NUMBER_WORDS.search(request.partition("\n")[0].lower()):
        return False
    if answer in asked_units.measures:
        return True
    # An area is in squares of a mentioned measure, a volume in cubes.
    powers_by_word = {"area": 2, "volume": 3}
    power = next((powers_by_word[word] for word in request_words if word in powers_by_word), 1)
    asks_side = not ANGLE_WORDS & {*request_words} and any(
        re.fullmatch("[A-Z]{2}", text) for text in find_asked_formulas(request)
    )
    # A question with a sine asks for an angle only if the request mentions one.
    text = request if ANGLE_WORDS & {*request_words} else question
    is_not_angle = (
        asks_side
        or NON_ANGLE_WORDS & {*request_words}
        or re.search(rf"\\(?:{TRIGONOMETRIC_FUNCTIONS})", text)
    )
    if is_not_angle and names == {"degree"}:
        return False
    if not names <= find_mentioned_measures(question):
        return False
    if not RATE_REQUEST.search(" ".join(request_words)):
        return powers == [power]
    divisors = {name for name, power in answer if power < 0}
    return powers == [-1, 1] and divisors == names & TIME_MEASURES
