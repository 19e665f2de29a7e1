"""Predicted memory of a training process."""

from dataclasses import replace

import pytest

from rapid.config.specs import Run, build_evaluate_spec, uses_vllm_server
from rapid.cost.memory import USABLE_SHARE, estimate_job_memory
from rapid.cost.shapes import load_published_shapes
from rapid.cost.work import count_processes
from tests.cost.conftest import EXPECTED, change_compute, make_spec

SHAPE = load_published_shapes()["Qwen2.5-0.5B"]
LONG = replace(EXPECTED, length=512, spread=1.0, prompt=150)


def test_training_in_float32_with_adam_takes_16_bytes_per_parameter(params):
    memory = estimate_job_memory(make_spec(params, "pg"), SHAPE, EXPECTED)
    assert memory.state == SHAPE.parameters * 16


def test_zero2_shards_gradients_and_optimizer_state_over_processes(paper):
    spec = change_compute(make_spec(paper, "pg"), processes=4)
    on_one_process = estimate_job_memory(change_compute(spec, processes=1), SHAPE, LONG).state
    on_four_processes = estimate_job_memory(spec, SHAPE, LONG).state
    # Per parameter: 2 bytes of gradient, 8 of Adam's moments, 4 of the float32 weight.
    saved = 3 / 4 * SHAPE.parameters * (2 + 8 + 4)
    assert on_one_process - on_four_processes == pytest.approx(saved)


def test_reference_policy_adds_a_copy_of_the_weights(paper):
    grpo, pg = (estimate_job_memory(make_spec(paper, n), SHAPE, LONG).state for n in ("grpo", "pg"))
    assert grpo - pg == 2 * SHAPE.parameters


def test_engine_and_keys_of_a_vllm_server_are_not_in_the_training_process(paper):
    sampled_here, served = (
        change_compute(make_spec(paper, name), sampler="vllm", processes=2)
        for name in ("grpo", "naive-grpo")
    )
    assert uses_vllm_server(served) and not uses_vllm_server(sampled_here)
    one_process = change_compute(sampled_here, processes=count_processes(served))
    memory = [estimate_job_memory(spec, SHAPE, LONG) for spec in (one_process, served)]
    assert memory[0].state - memory[1].state == 2 * SHAPE.parameters
    assert memory[0].sampling > memory[1].sampling == 0


@pytest.mark.parametrize("memory", [24e9, 48e9, 80e9])
def test_largest_micro_batch_fits_and_one_more_completion_does_not(paper, memory):
    spec = make_spec(paper, "rapid-H4").model_copy(update={"n_step": 256})
    available_bytes = USABLE_SHARE * memory
    largest = estimate_job_memory(spec, SHAPE, LONG).max_completions(available_bytes)

    def count_bytes(micro_batch):
        training = spec.training.model_copy(update={"micro_batch": micro_batch})
        return estimate_job_memory(
            spec.model_copy(update={"training": training}), SHAPE, LONG
        ).total

    assert count_bytes(largest) <= available_bytes < count_bytes(largest + 1)


def test_no_completion_fits_if_the_weights_do_not_fit(paper):
    largest_model = load_published_shapes()["Qwen2.5-32B"]
    assert (
        estimate_job_memory(make_spec(paper, "pg"), largest_model, LONG).max_completions(48e9) == 0
    )


def test_micro_batch_has_no_more_completions_than_a_process_has_in_a_step(paper):
    """With N_step = 4 on 4 processes, each has one completion, less than the micro-batch of 4."""
    spec = make_spec(paper, "pg", "mbpp_plus")
    assert count_processes(spec) == spec.n_step == 4
    assert estimate_job_memory(spec, SHAPE, LONG).completions == 1


def test_vllm_needs_the_keys_and_values_of_one_sequence_only(paper):
    """It samples fewer sequences at a time if memory is short, and transformers whole batches."""
    run = Run(benchmark="math", model="Qwen2.5-0.5B", algorithm="pg", seed=1)
    vllm = build_evaluate_spec(paper, run)
    in_vllm = estimate_job_memory(vllm, SHAPE, LONG)
    one_sequence = (LONG.prompt + LONG.limit) * SHAPE.count_key_value_bytes(2)
    assert in_vllm.required == in_vllm.state + one_sequence < in_vllm.total
    transformers = change_compute(vllm, sampler="transformers")
    in_transformers = estimate_job_memory(transformers, SHAPE, LONG)
    assert in_transformers.required == in_transformers.total


def test_keys_and_values_grow_with_the_inference_batch(paper):
    small, large = (
        estimate_job_memory(make_spec(paper, f"rapid-H{h}"), SHAPE, LONG).sampling for h in (2, 16)
    )
    assert large == pytest.approx(8 * small)
