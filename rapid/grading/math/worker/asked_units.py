"""Units that a question asks for or mentions, and those that an answer may have (units.py)."""

import itertools
import re
from collections.abc import Iterable
from typing import NamedTuple

from asked_quantity import (
    MEASURES_BY_DIMENSION,
    asks_percent,
    drop_conditions,
    extract_prose,
    find_asked_dimensions,
    find_asked_divisors,
    find_dimension,
)
from latex import TRIGONOMETRIC_FUNCTIONS
from question import FINDING_VERBS, WRITING_VERBS, find_asked_formulas, find_request
from units import (
    MAGNITUDE_WORDS,
    MEASURES,
    MEASURES_BY_STEM,
    NO_UNIT,
    NON_UNIT_WORDS,
    PERCENT,
    POWER_WORDS,
    RATES,
    Unit,
    get_unit_name,
    read_unit,
    stem_word,
)

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
LENGTH_MEASURES, TIME_MEASURES = (
    frozenset(MEASURES_BY_DIMENSION[dimension].split()) for dimension in ("length", "time")
)
# A question with a word of NON_ANGLE_WORDS does not ask for degrees. One with a RATE_REQUEST asks
# for a measure per time, and one that asks for a probability or ratio (PURE_NUMBER_WORDS) for no
# unit.
NON_ANGLE_WORDS = frozenset(["length", "distance", "area", "perimeter", "side", "radius", "volume"])
ANGLE_WORDS = frozenset(["angle", "angles", "degree", "degrees", "measure"])
RATE_REQUEST = re.compile(rf"\bhow fast\b|\b(?:what|{FINDING_VERBS})\b[^#]*\b(?:speed|rate)\b")
PURE_NUMBER_WORDS = re.compile(
    rf"\b(?:what|{FINDING_VERBS}|{WRITING_VERBS})(?: is| are| was)?(?: the| an?)?(?: [a-z]+)?"
    r" (?:probability|chance|fraction|ratio|proportion)\b"
)
# Stems of words after "how many" before things that are not the unit. After "how many pairs of
# shoes", pairs may be the unit, but not shoes.
MAGNITUDE_STEMS = frozenset(map(stem_word, ("pair", *MAGNITUDE_WORDS.split())))
# Signs by which a question mentions a measure.
MEASURE_MARKS = {
    "degree": r"\\circ|\u00b0|\bangles?\b|\d\$? degrees\b", "dollar": r"\\\$|\bdollar",
    "euro": r"€|\\(?:text)?euro\b", "sterling": r"£|\\(?:pounds|textsterling)\b",
    "yen": r"¥|\\yen\b", "rupee": "₹",
}  # fmt: skip
# Pounds that are money, not mass.
POUNDS_AS_MONEY = re.compile(
    rf"{MEASURE_MARKS['sterling']}|\b(?:pence|pounds sterling)\b"
    r"|\b(?:cost|price|pay|value|worth|earn|spend)\b[^.?!]*\bin pounds\b"
)


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
        words |= list_names(phrase)
        if phrase and stem_word(phrase[0]) in MAGNITUDE_STEMS:
            counted = {"#"} | list_names(phrase[:1])  # and no other word, even if that is none
            continue
        # Minutes in "more minutes", but not second in "second graders". Short names, such as kg,
        # are measures as the first word.
        asked_measures = [unit for name, unit in list_measures(phrase) if PLURAL.fullmatch(name)]
        if phrase and len(phrase[0]) < 3 and get_unit_name(phrase[0]) in MEASURES:
            run = [phrase[0], *itertools.takewhile(is_measure_word, phrase[1:])]
            asked_measures = [unit for unit in [read_unit(" ".join(run))] if unit]
        if asked_measures:
            # Minutes per day may also be called minutes.
            measures |= {asked_measures[0], drop_period(asked_measures[0])}
            continue
        # In "how many cups of red flour", both cups and flour may be the unit, and in "how many
        # books sold today" books, which is a plural. In "pages per day", days may not.
        for group in re.split(r"\bof\b", " ".join(phrase).partition(" per ")[0]):
            plurals = [word for word in group.split() if PLURAL.fullmatch(word)]
            counted |= list_names(plurals or group.split()[-1:])
    if not (measures or counted):
        for phrase in NAMED_UNITS.findall(text):
            if unit := read_unit(" ".join(itertools.takewhile(is_measure_word, phrase.split()))):
                measures.add(unit)
    return AskedUnits(measures, counted - MEASURES.keys(), words)


def list_names(words: Iterable[str]) -> set[str]:
    """Return the names of the units that words may be."""
    return {get_unit_name(word) for word in words if word not in NON_UNIT_WORDS}


def drop_period(unit: Unit) -> Unit:
    """Return a unit without a measure of time that divides it: minutes for minutes per day."""
    return frozenset(
        (name, power) for name, power in unit if power > 0 or name not in TIME_MEASURES
    )


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


def is_unit_allowed(gold: Unit, answer: Unit, question: str) -> bool:
    """Return whether an answer may have this unit.

    - An answer may have the unit of the known answer, or none.
    - If the known answer has a measure of length, an answer may have "units" with the same
      exponent.
    - If the unit of the known answer is no measure, an answer may have as its unit another thing
      that the question counts.
    - If the known answer has no unit, an answer may have the unit that the question asks for, in
      the sentence that asks if it names one. It is percent if the question asks for a percentage.
    - If that sentence names no unit, an answer may have a measure that the question mentions, of a
      dimension that it asks for (`find_asked_dimensions`). If that is unknown, the measure is
      squared if the question is about an area, cubed if the question is about a volume, and divided
      by one of time if it is about a rate. It may not be degrees if the question is about lengths
      or trigonometric functions, and none if it asks for a probability, a ratio or a sine.
    - An allowed unit may be divided by a unit with which the question asks, as in "per pen" or "a
      day".
    """
    if POUNDS_AS_MONEY.search(question):
        question = re.sub(r"\bpounds?\b", "sterling", question)
        gold, answer = (
            frozenset(("sterling" if name == "lb" else name, power) for name, power in unit)
            for unit in (gold, answer)
        )
    if not answer or answer == gold:
        return True
    undivided = answer - {(name, -1) for name in find_asked_divisors(question)}
    if not gold and asks_percent(question):
        return undivided == PERCENT
    if answer > PERCENT:
        return False
    if undivided not in (answer, NO_UNIT) and is_unit_allowed(gold, undivided, question):
        return True
    asked_units, names = find_asked_units(question), {name for name, _ in answer}
    is_counted = names <= asked_units.words and any(
        (name, 1) in answer for name in asked_units.counted
    )
    powers = sorted(power for _, power in answer)
    if gold:
        if {name for name, _ in gold} <= MEASURES.keys():
            is_length = {name for name, _ in gold} <= LENGTH_MEASURES
            # "units", or "square units", may replace a measure of length with the same power.
            return names == {"unit"} and is_length and powers == sorted(power for _, power in gold)
        return is_counted
    # In "how many kg of rice" both kg and kg of rice may be the unit.
    has_asked_measure = names <= asked_units.words and any(
        measure <= answer and {power for _, power in answer - measure} <= {1}
        for measure in asked_units.measures
    )
    if is_counted or has_asked_measure:
        return True
    request = drop_conditions(find_request(question))
    units_of_request = find_asked_units(request)
    if units_of_request.measures or units_of_request.counted:
        return answer in units_of_request.measures
    request_words = extract_prose(request).split()
    if PURE_NUMBER_WORDS.search(request.partition("\n")[0].lower()) or any(
        re.match(rf"\\(?:{TRIGONOMETRIC_FUNCTIONS})(?![a-z])", text)
        for text in find_asked_formulas(request)
    ):
        return False
    dimensions = find_asked_dimensions(question)
    if dimensions and find_dimension(answer) not in dimensions:
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
    if dimensions:
        return True
    if not RATE_REQUEST.search(" ".join(request_words)):
        return powers == [power]
    divisors = {name for name, power in answer if power < 0}
    return powers == [-1, 1] and divisors == names & TIME_MEASURES
