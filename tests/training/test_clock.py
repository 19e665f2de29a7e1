"""PhaseClock with a clock that the test moves."""

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


def test_a_failing_phase_is_left(time):
    clock = PhaseClock(time)
    with pytest.raises(RuntimeError), clock.phase("a"):
        time.now += 1
        raise RuntimeError
    with clock.phase("b"):
        time.now += 1
    assert clock.seconds == {"a": 1, "b": 1}
