"""Texts on the target accuracy of a field of the arena."""

import math

from reports import formats
from reports.outcomes import FieldOutcomes
from reports.tables.table import MISSING


def format_target_accuracy(outcomes: FieldOutcomes) -> str:
    """Return the target accuracy in percent, without the sign; a dash if there are no runs yet."""
    return (
        MISSING if math.isnan(outcomes.target_accuracy) else f"{100 * outcomes.target_accuracy:g}"
    )


def describe_target(outcomes: FieldOutcomes) -> dict[str, str]:
    """Return facts about a target accuracy that is not in the parameters; {} if it is."""
    target = outcomes.test_target if outcomes.field.reach is None else None
    if target is None or math.isnan(target.level):
        return {}
    return {
        "start": formats.percent(target.start),
        "noise": MISSING if math.isnan(target.noise) else formats.percent(target.noise),
        "chance": MISSING if math.isnan(target.chance) else formats.p_value(target.chance),
    }
