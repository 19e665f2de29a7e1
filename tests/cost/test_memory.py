"""Bytes of a process and on disk."""

from dataclasses import replace

import pytest

from rapid.cost.memory import (
    USABLE,
    head_bytes,
    largest_micro_batch,
    model_disk,
    process_bytes,
    training_bytes,
)
from rapid.cost.sizes import published, shapes
from rapid.cost.work import processes
from tests.cost.conftest import EXPECTED, spec_of

SHAPE = published()["Qwen2.5-0.5B"]
LONG = replace(EXPECTED, length=512, spread=1.0, prompt=150)


def with_processes(spec, count):
    return spec.model_copy(update={"compute": spec.compute.model_copy(update={"processes": count})})


def test_adam_in_float32_holds_four_numbers_a_parameter(params):
    held = training_bytes(spec_of(params, "pg"), SHAPE, EXPECTED)
    assert held.state == SHAPE.parameters * 16


def test_zero_shares_out_gradients_and_state(paper):
    spec = with_processes(spec_of(paper, "pg"), 4)
    alone = training_bytes(with_processes(spec, 1), SHAPE, LONG).state
    shared = training_bytes(spec, SHAPE, LONG).state
    assert alone - shared == pytest.approx(3 / 4 * SHAPE.parameters * (2 + 8 + 4))


def test_the_reference_is_one_more_set_of_weights(paper):
    grpo, pg = (training_bytes(spec_of(paper, n), SHAPE, LONG).state for n in ("grpo", "pg"))
    assert grpo - pg == 2 * SHAPE.parameters


@pytest.mark.parametrize("memory", [24e9, 48e9, 80e9])
def test_the_largest_micro_batch_fits_and_one_more_group_does_not(paper, memory):
    spec = spec_of(paper, "rapid-H4").model_copy(update={"n_step": 256})
    largest = largest_micro_batch(spec, SHAPE, LONG, memory, base=1e9)
    group = spec.training.group_size
    assert largest > 0 and largest % group == 0

    def needed(micro_batch):
        training = spec.training.model_copy(update={"micro_batch": micro_batch})
        return process_bytes(spec.model_copy(update={"training": training}), SHAPE, LONG, base=1e9)

    assert needed(largest) <= USABLE * memory < needed(largest + group)


def test_where_the_weights_do_not_fit_nothing_does(paper):
    big = published()["Qwen2.5-32B"]
    assert largest_micro_batch(spec_of(paper, "pg"), big, LONG, 48e9, base=0) == 0


def test_a_process_with_one_completion_of_a_step_holds_no_more(paper):
    """N_step 4 on 4 processes: the micro-batch of 4 is never full."""
    spec = spec_of(paper, "pg", "mbpp_plus")
    assert processes(spec) == spec.n_step == 4
    held = training_bytes(spec, SHAPE, LONG)
    assert process_bytes(spec, SHAPE, LONG, 0.0) == pytest.approx(held.total(1) + head_bytes(SHAPE))


def test_a_larger_inference_batch_holds_more_keys_and_values(paper):
    small, large = (
        training_bytes(spec_of(paper, f"rapid-H{h}"), SHAPE, LONG).sampling for h in (2, 16)
    )
    assert large == pytest.approx(8 * small)


def test_a_saved_model_takes_its_weights(params):
    shape = shapes(params, {})["tiny-qwen2"]
    assert model_disk(shape, "float32") == pytest.approx(4 * shape.parameters, rel=0.03)
    assert model_disk(SHAPE, "bfloat16") == pytest.approx(2 * SHAPE.parameters, rel=0.03)
