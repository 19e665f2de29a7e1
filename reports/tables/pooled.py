"""Tables of two runs of the whole arena: the verdicts of both pooled, and of other analyses.

`reports.analyses` describes the analyses, and the fields of the arena.
"""

from collections import Counter
from collections.abc import Callable
from itertools import chain

from reports import formats
from reports.analyses import FieldAnalyses
from reports.outcomes import METRIC, FieldOutcomes
from reports.tables.arena import (
    JudgedClaim,
    build_claim_estimate_cell,
    build_claims_tables,
    group_by_benchmark,
    judge_claims,
)
from reports.tables.claims import FAILS, HOLDS, OPEN, UNTESTED
from reports.tables.layout import build_table, single_group
from reports.tables.profiles import build_profile_table
from reports.tables.standings import collect_cluster_facts
from reports.tables.table import MISSING, Cell, Table

# Titles of the analyses. Their attributes in `FieldAnalyses` have the same names: other_target, ...
ANALYSES = ("Pooled", "Over seeds", "Earlier", "Latest", "Clustered", "Other target")
# Title of an analysis -> benchmark -> its claims, as the analysis judges them.
ClaimsByAnalysis = dict[str, dict[str, list[JudgedClaim]]]


def build_tables(fields: list[FieldAnalyses]) -> list[Table]:
    """Return all tables.

    They have the claims, other analyses of the claims, counts of verdicts, target accuracies, and
    shares of trainings that reach a level of accuracy.
    """
    data = fields[0].latest.data
    judged_claims = {
        title: group_by_benchmark(
            judge_claims([getattr(field, title.lower().replace(" ", "_")) for field in fields])
        )
        for title in ANALYSES
    }
    pooled = list(chain.from_iterable(judged_claims["Pooled"].values()))
    cluster_facts = collect_cluster_facts([field.clustered for field in fields])
    tables = build_claims_tables(data, pooled, "pooled-claims", **cluster_facts)
    # The table of target accuracies follows two tables for each field, and the table of counts.
    target_number = len(tables) + 2 * len(fields) + 2
    for name, build_cell in (
        ("pooled-verdicts", _build_verdict_cell),
        ("pooled-estimates", build_claim_estimate_cell),
    ):
        for field in fields:
            benchmark = field.latest.benchmark
            columns = {
                title: lambda row, build_cell=build_cell, claims=by_benchmark[benchmark]: (
                    build_cell(claims[row])
                )
                for title, by_benchmark in judged_claims.items()
            }
            claims = judged_claims["Pooled"][benchmark]
            table = build_table(
                name,
                data,
                [[(claim.text, row) for row, claim in enumerate(claims)]],
                single_group(columns),
                [benchmark],
                len(tables) + 1,
                last=field is fields[-1],
                target_number=target_number,
            )
            tables.append(table)
    tables.append(_build_counts_table(judged_claims, fields, len(tables) + 1))
    tables.append(_build_target_table(fields, len(tables) + 1))
    for field in fields:
        tables.append(build_profile_table([field.earlier, field.latest], len(tables) + 1))
    return tables


def _build_verdict_cell(claim: JudgedClaim) -> Cell:
    """Return a cell with the verdict, whether the claim is underpowered, and p."""
    if claim.verdict == UNTESTED:
        return Cell(MISSING)
    return Cell(f"{claim.decision} ({formats.p_value(claim.p)})")


def _build_counts_table(
    judged_claims: ClaimsByAnalysis, fields: list[FieldAnalyses], number: int
) -> Table:
    """Return the table of the number of claims with each verdict, by analysis."""
    counts = {
        title: Counter(claim.verdict for claim in chain.from_iterable(by_benchmark.values()))
        for title, by_benchmark in judged_claims.items()
    }
    columns = {
        verdict.capitalize(): lambda title, verdict=verdict: Cell(str(counts[title][verdict]))
        for verdict in (HOLDS, OPEN, FAILS)
    }
    return build_table(
        "verdict-counts",
        fields[0].latest.data,
        [[(title, title) for title in counts]],
        single_group(columns),
        [field.latest.benchmark for field in fields],
        number,
    )


def _build_target_table(fields: list[FieldAnalyses], number: int) -> Table:
    """Return the table of target accuracies, and of the chance to reach them without learning."""
    latest = [field.latest for field in fields]
    columns: dict[str, Callable[[FieldOutcomes], Cell]] = {
        "Start": lambda outcomes: Cell(
            formats.percent(outcomes.test_target.start), formats.percent(outcomes.test_target.noise)
        ),
        "Target": lambda outcomes: Cell(formats.percent(outcomes.target_accuracy)),
        "Chance": lambda outcomes: Cell(formats.p_value(outcomes.test_target.chance_of_used)),
        "Target on the test problems": lambda outcomes: Cell(
            formats.percent(outcomes.test_target.computed)
        ),
        "Chance of that target": lambda outcomes: Cell(
            formats.p_value(outcomes.test_target.chance_of_computed)
        ),
    }
    start = latest[0].data.params.training.start
    evaluations = [
        f"{outcomes.select_runs(start)[METRIC].count()} on {outcomes.label}" for outcomes in latest
    ]
    return build_table(
        "target",
        latest[0].data,
        [[(outcomes.label, outcomes) for outcomes in latest]],
        single_group(columns),
        [outcomes.benchmark for outcomes in latest],
        number,
        evaluations=evaluations,
        gain_shares=sorted({f"{outcomes.field.gain_share:.0%}" for outcomes in latest}),
        evaluations_per_run=sorted({outcomes.field.snapshots + 1 for outcomes in latest}),
    )
