"""PhaseClock with a clock that the test moves."""

import itertools

import pytest

from rapid.training.clock import PhaseClock


@pytest.fixture
def time():
    class Time:
        now = 0.0

        def __call__(self):
            return self.now

    return Time()


def test_an_inner_phase_pauses_the_outer_one(time):
    clock = PhaseClock(time)
    with clock.phase("outer"):
        time.now += 1
        with clock.phase("inner"):
            time.now += 10
        time.now += 2
    assert clock.seconds == {"outer": 3, "inner": 10}


def test_time_between_phases_is_no_phase_s(time):
    clock = PhaseClock(time)
    with clock.phase("a"):
        time.now += 1
    time.now += 100
    with clock.phase("a"):
        time.now += 1
    assert clock.seconds == {"a": 2}


def test_what_others_took_is_counted_by_phase_too():
    now, waited = itertools.count(step=10).__next__, itertools.count().__next__
    clock = PhaseClock(now, waited)
    with clock.phase("outer"), clock.phase("inner"):
        pass
    assert clock.seconds == {"outer": 20, "inner": 10}
    assert clock.waited == {"outer": 2, "inner": 1}


def test_a_failing_phase_is_left(time):
    clock = PhaseClock(time)
    with pytest.raises(RuntimeError), clock.phase("a"):
        time.now += 1
        raise RuntimeError
    with clock.phase("b"):
        time.now += 1
    assert clock.seconds == {"a": 1, "b": 1}
