"""Memory of a process."""

from dataclasses import replace

import pytest

from rapid.cost.memory import USABLE, job_memory
from rapid.cost.shapes import published
from rapid.cost.work import processes
from tests.cost.conftest import EXPECTED, change_compute, make_spec

SHAPE = published()["Qwen2.5-0.5B"]
LONG = replace(EXPECTED, length=512, spread=1.0, prompt=150)


def test_adam_in_float32_holds_four_numbers_per_parameter(params):
    held = job_memory(make_spec(params, "pg"), SHAPE, EXPECTED)
    assert held.state == SHAPE.parameters * 16


def test_zero_divides_gradients_and_optimizer_state_among_processes(paper):
    spec = change_compute(make_spec(paper, "pg"), processes=4)
    on_one_process = job_memory(change_compute(spec, processes=1), SHAPE, LONG).state
    shared = job_memory(spec, SHAPE, LONG).state
    assert on_one_process - shared == pytest.approx(3 / 4 * SHAPE.parameters * (2 + 8 + 4))


def test_reference_policy_adds_a_set_of_weights(paper):
    grpo, pg = (job_memory(make_spec(paper, n), SHAPE, LONG).state for n in ("grpo", "pg"))
    assert grpo - pg == 2 * SHAPE.parameters


@pytest.mark.parametrize("memory", [24e9, 48e9, 80e9])
def test_largest_micro_batch_fits_and_one_more_completion_does_not(paper, memory):
    spec = make_spec(paper, "rapid-H4").model_copy(update={"n_step": 256})
    room = USABLE * memory
    largest = job_memory(spec, SHAPE, LONG).most_completions(room)

    def needed(micro_batch):
        training = spec.training.model_copy(update={"micro_batch": micro_batch})
        return job_memory(spec.model_copy(update={"training": training}), SHAPE, LONG).total

    assert needed(largest) <= room < needed(largest + 1)


def test_no_completion_fits_where_the_weights_do_not(paper):
    largest_model = published()["Qwen2.5-32B"]
    assert job_memory(make_spec(paper, "pg"), largest_model, LONG).most_completions(48e9) == 0


def test_process_holds_only_its_completions_of_a_step(paper):
    """With N_step = 4 on 4 processes the micro-batch of 4 is never full."""
    spec = make_spec(paper, "pg", "mbpp_plus")
    assert processes(spec) == spec.n_step == 4
    assert job_memory(spec, SHAPE, LONG).completions == 1


def test_larger_inference_batch_holds_more_keys_and_values(paper):
    small, large = (
        job_memory(make_spec(paper, f"rapid-H{h}"), SHAPE, LONG).sampling for h in (2, 16)
    )
    assert large == pytest.approx(8 * small)
