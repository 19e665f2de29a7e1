"""PhaseClock counts seconds and waiting by phase; the test sets the clocks."""

import itertools

import pytest

from rapid.training.clock import PhaseClock


def test_inner_phase_pauses_outer_and_time_between_is_not_counted():
    times = iter([0, 0, 1, 11, 13, 113, 114])
    clock = PhaseClock(lambda: next(times))
    with clock.phase("outer"), clock.phase("inner"):
        pass
    with clock.phase("outer"):
        pass
    assert clock.seconds == {"outer": 1 + 2 + 1, "inner": 10}


def test_waiting_time_is_counted_by_phase():
    now, waited = itertools.count(step=10).__next__, itertools.count().__next__
    clock = PhaseClock(now, waited)
    with clock.phase("outer"), clock.phase("inner"):
        pass
    assert clock.seconds == {"outer": 20, "inner": 10}
    assert clock.waited == {"outer": 2, "inner": 1}


def test_failing_phase_ends():
    clock = PhaseClock(itertools.count().__next__)
    with pytest.raises(RuntimeError), clock.phase("a"):
        raise RuntimeError
    with clock.phase("b"):
        pass
    assert clock.seconds == {"a": 1, "b": 1}
