"""What `make mutants` changes: one place at a time, in what decides figures and verdicts."""

from tests import mutants

SOURCE = '''"""Words."""
def f(x: int = 1) -> bool:
    if (x) > 2 and not g(x, y=x, label="é", strict=True):
        x += min([(x).mean()])
        say(x)
        print(x + 1)
    return -x == 3 or raised(f"{x + 1}")
'''


def test_every_kind_of_change_is_made_where_it_is_code():
    made = [(one.line, one.old, one.new) for one in mutants.mutants("f.py", SOURCE)]
    assert made == [
        (2, "1", "2"),
        (3, "(x) > 2 and not g(x, y=x, label=\"é\", strict=True)", "(not ((x) > 2 and not g(x, y=x, label=\"é\", strict=True)))"),
        (3, "and", "or"),
        (3, ">", ">="),
        (3, "2", "3"),
        (3, "not ", " "),
        (3, "y=x,", ""),
        (4, "x += min([(x).mean()])", "pass"),
        (4, "min", "max"),
        (4, "mean", "sum"),
        (5, "say(x)", "pass"),
        (7, "or", "and"),
        (7, "==", "!="),
        (7, "-", " "),
        (7, "3", "4"),
    ]  # fmt: skip


def test_the_tests_that_are_to_notice_are_there():
    assert all((mutants.ROOT / one).exists() for area in mutants.AREAS.values() for one in area)


def test_a_sample_is_drawn_by_its_seed_from_what_has_tests():
    area = "rapid/algorithms/"
    some = mutants.sample(30, 0, area)
    assert some == mutants.sample(40, 0, area)[:30] != mutants.sample(30, 1, area)
    for one in mutants.sample(30, 0, "rapid/grading/"):  # with areas in it, and files left out
        assert one.file.startswith(tuple(mutants.AREAS))
        assert not one.file.startswith(mutants.LEFT_OUT)
        assert mutants.tests_of(one.file)
    of_pg = {one.file for one in mutants.sample(9, 0, f"{area}pg")}
    assert of_pg == {"rapid/algorithms/pg.py"}
