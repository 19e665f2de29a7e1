"""Reads which quantity a question asks for: a percentage, a share, a cost, a length and so on.

The dimension of a unit is a set of names with exponents, like a unit: square feet per hour have the
dimension {("length", 2), ("time", -1)}.
"""

import itertools
import re
from collections import Counter

from question import FINDING_VERBS, WRITING_VERBS, find_asked_formulas, find_request
from units import Unit, get_unit_name, stem_word

# The measures of each dimension. "Units" are those of length.
MEASURES_BY_DIMENSION = {
    "length": "mm cm m km in ft yd mi unit", "time": "s min h day week month yr",
    "mass": "mg g kg oz lb ton", "capacity": "ml l gal qt pt", "angle": "degree radian",
    "money": "dollar cent euro sterling yen rupee yuan peso franc",
}  # fmt: skip
DIMENSIONS = {
    measure: dimension
    for dimension, measures in MEASURES_BY_DIMENSION.items()
    for measure in measures.split()
}
# Words for quantities, and the dimensions of each: a length may be that of a film.
QUANTITIES = {
    "far tall high wide deep thick farther further taller higher wider deeper thicker distance "
    "height width depth thickness perimeter circumference radius diameter altitude hypotenuse "
    "diagonal side": [{("length", 1)}],
    "long longer shorter length": [{("length", 1)}, {("time", 1)}],
    "old older younger soon sooner later earlier time duration age": [{("time", 1)}],
    "heavy heavier lighter weight mass weigh": [{("mass", 1)}],
    "cost price money cash pay toll deposit loan salary wage income revenue profit expense fee tax "
    "bill tip rent interest discount savings earnings payment debt budget expensive cheaper": [
        {("money", 1)}
    ],
    "area": [{("length", 2)}],
    "volume capacity": [{("length", 3)}, {("capacity", 1)}],
    "angle": [{("angle", 1)}],
}
DIMENSIONS_BY_STEM = {
    stem_word(word): frozenset(map(frozenset, dimensions))
    for words, dimensions in QUANTITIES.items()
    for word in words.split()
}
# A condition, of which a question asks nothing: "if the number of pens is 5, what do they cost?"
# The group is the rest of a sentence with no condition, which need not be searched again.
CONDITION = re.compile(rf"(?i)\bif\b[^?!]*?, *(?=(?:what|how|{FINDING_VERBS})\b)|(\bif\b[^?!]*)")
# A word that asks, and the words after it. With a lookahead, (?=...), a match may begin inside
# another one.
ASKED_WORDS = re.compile(
    rf"\b(what|{FINDING_VERBS}|{WRITING_VERBS}|how(?: many| much)?) (?=((?:[a-z/-]+ ?){{1,8}}))"
)
# In "what is the sum of the lengths" the lengths are asked for.
AGGREGATE = re.compile(
    r"\b(?:(?:sum|total|average|mean|value|measure|amount) of|length of(?= time)) (?:all )?"
)
# Words before the noun that is asked for, and words that end its description. So does the
# determiner of another noun.
VERBS_BEFORE = "is are was were be will would should do does did s"
DETERMINERS = "the a an this these each every my your our his her its their"
END_OF_NOUN = (
    f"{DETERMINERS} is are was were be do does did can will would has have had must should there "
    "in with that who which whose to from than of for if when after before at by on and or between "
    "as given per"
)
VERBS_BEFORE, DETERMINERS, END_OF_NOUN = (
    frozenset(words.split(" ")) for words in (VERBS_BEFORE, DETERMINERS, END_OF_NOUN)
)
# Numbers as words.
NUMBER_WORD = re.compile(
    r"one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand|half"
    r"|(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty(?:-[a-z]+)?"
)
# A percentage as the form of an answer, and not in a condition: "to the nearest percent".
PERCENT_AS_FORM = re.compile(
    r"(?:(?!\b(?:if|when|given|assuming|since|because|whose)\b).)*\b"
    r"(?:as an? (?:[a-z]+ )?|nearest (?:(?:whole|tenth|hundredth)(?: of an?)? )?)percent"
)
# Stems of words for a number between 0 and 1.
SHARES = "probability probabilities chance likely likelihood fraction proportion portion"
SHARES = frozenset(map(stem_word, SHARES.split(" ")))
# The verb of a question after "what" or "how much", and the words that make "how long" a time.
ASKED_VERB = re.compile(
    r"\b(?:how much|what)(?: more| less)?(?: in [a-z]+)?"
    r" (?:do|does|did|will|would|should|must|can) "
    r".*?\b(cost|pay|earn|spend|charge|owe|make|weigh)\b|\bhow much change\b"
)
DURATION = re.compile(
    r"\bhow (?:much )?long(?:er)? (?:do|does|did|will|would|should|must|has|have|had|is|was)\b.*"
    r"\b(?:take|last|wait|until|before)\b|^when (?:do|does|did|will|would|is|was)\b"
)
# What ends the part of a question in which "per day" belongs to what is asked for, and words after
# which "a day" does not divide: in "how far does it go in a day" it is the time of the way.
END_OF_REQUEST = re.compile(
    rf"#|\b(?:if|when|while|given|assuming|since|because|at|that|who|which|whose|{NUMBER_WORD.pattern})\b"
)
PREPOSITIONS = "in of for within over after during by on than half about"
PREPOSITIONS = frozenset(PREPOSITIONS.split(" "))


def extract_prose(question: str) -> str:
    """Return the words of a question in lower case, with # for numbers, formulas and punctuation.

    Words that a hyphen or slash joins, as in "kilowatt-hours" and "m/s", are one word.
    """
    text = re.sub(r"(?<!\\)\$[^$]*(?<!\\)\$|\d[\d.,]*|[.,;:?!]", " # ", question).lower()
    return " ".join(re.findall(r"[a-z]+(?:[/-][a-z]+)*|#", text))


def list_requests(question: str) -> list[str]:
    """Return the sentences with which a question asks, without the conditions in them."""
    return drop_conditions(find_request(question)).split("\n")


def drop_conditions(request: str) -> str:
    """Return a request without the conditions in it."""
    return CONDITION.sub(r"\1", request)


def list_asked_nouns(sentence: str) -> list[tuple[str, list[str]]]:
    """Return the descriptions of what a sentence asks for, each after the word that asks.

    For "what is the total cost of" this is ("what", ["total", "cost"]).
    """
    nouns = []
    for asking_word, text in ASKED_WORDS.findall(AGGREGATE.sub("", extract_prose(sentence))):
        words = itertools.dropwhile(VERBS_BEFORE.__contains__, text.split())
        words = itertools.dropwhile(DETERMINERS.__contains__, words)
        nouns.append(
            (asking_word, [*itertools.takewhile(lambda word: word not in END_OF_NOUN, words)])
        )
    return nouns


def asks_percent(question: str) -> bool:
    """Return whether a question asks for a number of percent.

    It does so if percent, or a percentage, is what it asks for, or the form of the answer. In "the
    price after a 20 percent increase" and "20 percent of 50" it is not.
    """
    sentences = list_requests(question)
    if any(PERCENT_AS_FORM.match(extract_prose(sentence)) for sentence in sentences):
        return True
    for _, words in itertools.chain(*map(list_asked_nouns, sentences)):
        for before, word in itertools.pairwise(["", *words]):
            if word in ("percent", "percentage") and not NUMBER_WORD.fullmatch(before):
                return True
    return False


def asks_share(question: str) -> bool:
    """Return whether a question asks for a share, such as a probability."""
    nouns = itertools.chain(*map(list_asked_nouns, list_requests(question)))
    return any(stem_word(word) in SHARES for _, words in nouns for word in words)


def find_asked_dimensions(question: str) -> frozenset[Unit]:
    """Return the dimensions of what a question asks for; an empty set if its words tell none."""
    dimensions: set[Unit] = set()
    for sentence in list_requests(question)[:1]:
        prose = extract_prose(sentence)
        if DURATION.search(prose):
            return get_dimensions("time")
        for asking_word, words in list_asked_nouns(sentence):
            quantities = [*filter(get_dimensions, words)]
            if quantities and asking_word != "how many":
                dimensions |= get_dimensions(quantities[-1])
        if not dimensions and (verb := ASKED_VERB.search(prose)):
            dimensions |= get_dimensions("weight" if verb[1] == "weigh" else "money")
        if any(re.match(r"m? *\\angle", formula) for formula in find_asked_formulas(sentence)):
            dimensions |= get_dimensions("angle")
    return frozenset(dimensions)


def get_dimensions(word: str) -> frozenset[Unit]:
    """Return the dimensions of a quantity; an empty set if the word is no quantity."""
    return DIMENSIONS_BY_STEM.get(stem_word(word), frozenset())


def find_dimension(unit: Unit) -> Unit:
    """Return the dimension of a unit. A name that is no measure is its own dimension."""
    powers: Counter[str] = Counter()
    for name, power in unit:
        powers[DIMENSIONS.get(name, name)] += power
    return frozenset((name, power) for name, power in powers.items() if power)


def find_asked_divisors(question: str) -> set[str]:
    """Return the units by which a question divides what it asks for, as in "per pen" or "a day".

    In "How much does she earn in 3 days at $5 a day?" the day divides only what is stated.
    """
    divisors = set()
    for sentence in list_requests(question)[:1]:
        prose = extract_prose(re.sub(r",(?!\d)", "", sentence))
        asking_word = re.search(rf"\b(?:what|how|{FINDING_VERBS})\b", prose)
        words = END_OF_REQUEST.split(prose[asking_word.end() if asking_word else 0 :])[0].split()
        for before, word, name in zip(["", *words], words, words[1:], strict=False):
            is_period = DIMENSIONS.get(get_unit_name(name)) == "time" and before not in PREPOSITIONS
            if word in ("per", "each", "every") or (word in ("a", "an") and is_period):
                divisors.add(get_unit_name(name))
    return divisors
