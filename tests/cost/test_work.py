"""What jobs do, counted."""

from dataclasses import replace

import pytest

from rapid.config.params import load
from rapid.cost.memory import with_passes
from rapid.cost.work import AT_A_TIME, job_work, train_work
from rapid.sampling import BATCH
from tests.cost.conftest import EXPECTED, computing, spec_of

SPREAD = replace(EXPECTED, spread=1.0)


def counted(params, name, expected=SPREAD, benchmark="math"):
    return job_work(spec_of(params, name, benchmark), params, lambda *pair: expected)


def test_as_many_are_sampled_at_a_time_as_the_plan_counts():
    assert AT_A_TIME == BATCH  # the plan's own, since what samples takes seconds to import


@pytest.mark.parametrize("name", ["pg", "grpo", "naive-grpo", "rapid-H2", "rapid-H16"])
def test_every_algorithm_samples_each_problem_once_an_epoch(params, name):
    """And takes a step for each N_step of its completions, 4."""
    work = counted(params, name)
    assert work.completions == pytest.approx(64 * 4)
    assert work.steps == 64


def test_an_inference_batch_that_would_not_be_full_is_not_sampled(values):
    """Of 31 problems with H=16, N_step=4 and groups of 4 the first 16 make one, in each epoch."""
    values["benchmarks"]["math"]["train"] = 31
    values["training"]["epochs"] = 2
    assert counted(load(values), "rapid-H16").steps == 2 * 16
    assert counted(load(values), "rapid-H4").steps == 2 * 28


def test_larger_batches_take_fewer_decoding_steps(params):
    found = [counted(params, f"rapid-H{h}").decoding_steps for h in (1, 2, 4, 8, 16)]
    assert found == sorted(found, reverse=True)


def test_lengths_that_differ_eat_up_a_part_of_what_larger_batches_save(params):
    def saved(expected):
        one, many = counted(params, "pg", expected), counted(params, "rapid-H16", expected)
        return one.decoding_steps / many.decoding_steps

    assert saved(EXPECTED) == pytest.approx(16)
    assert 1 < saved(SPREAD) < 16


def test_sampling_part_of_a_step_at_a_time_takes_more_decoding_steps(values):
    """naive-grpo samples N_step by default, and takes as many as grpo."""
    values["naive_grpo"]["sampling_batch"] = 2
    naive, grpo = (counted(load(values), name) for name in ("naive-grpo", "grpo"))
    assert naive.decoding_steps > grpo.decoding_steps


def test_processes_that_sample_one_completion_each_wait_alike(paper):
    """Nothing is left to split: naive-grpo is grpo."""
    naive, grpo = (counted(paper, name, SPREAD, "mbpp_plus") for name in ("naive-grpo", "grpo"))
    assert naive.decoding_steps == pytest.approx(grpo.decoding_steps)


def test_dapo_samples_more_the_fewer_groups_have_a_signal(params):
    few, many = (
        counted(params, "dapo", replace(SPREAD, signal=signal)).completions for signal in (0.2, 0.9)
    )
    assert few > many > 64 * 4


def test_a_kl_term_needs_the_references_forward_pass(params):
    free = params.model_copy(update={"grpo": params.grpo.model_copy(update={"beta": 0.0})})
    all_alike = replace(EXPECTED, signal=1.0)
    with_it, without = (counted(one, "grpo", all_alike) for one in (params, free))
    assert with_it.tokens == pytest.approx(without.tokens * 4 / 3)
    assert with_it.passes == pytest.approx(without.passes * 4 / 3)


def test_log_mu_is_computed_where_the_sampler_is_not_exact(params, paper):
    """Of 3 of 4 steps, by a forward pass: a third of one forward and backward."""

    def again(params):
        alike = {"weighted": False}  # as many groups run as with H = 1
        spec = spec_of(params, "rapid-H4")
        spec = spec.model_copy(update={"objective": spec.objective.model_copy(update=alike)})
        exact = spec.training.model_copy(update={"precision": "float32"})
        exact = spec.model_copy(update={"training": exact})
        return train_work(spec, 64, SPREAD).tokens / train_work(exact, 64, SPREAD).tokens

    assert again(params) == 1
    assert again(paper) == pytest.approx(1 + 3 / 4 / 3)


def test_processes_share_a_large_steps_tokens(paper):
    one = computing(paper, processes=1)
    whole, shared = counted(one, "grpo").tokens, counted(paper, "grpo").tokens
    assert shared == pytest.approx(whole / 4)


def test_transformers_computes_rows_that_have_ended_and_vllm_does_not(params):
    spec = spec_of(params, "pg")
    both = (computing(spec, sampler=name) for name in ("transformers", "vllm"))
    static, continuous = (train_work(one, 64, SPREAD) for one in both)
    assert static.decoding_steps == pytest.approx(continuous.decoding_steps)
    assert static.rows == pytest.approx(4 * static.decoding_steps)
    assert continuous.rows == pytest.approx(64 * 4 * SPREAD.mean)


def test_sft_costs_in_proportion_to_its_steps(params):
    spec = spec_of(params, "sft")
    one, two = (train_work(spec, steps, EXPECTED).tokens for steps in (10, 20))
    assert two == pytest.approx(2 * one)


def test_processes_share_sfts_batch(paper):
    spec = with_passes(spec_of(paper, "sft"), 12)
    one, four = (train_work(computing(spec, processes=n), 10, EXPECTED) for n in (1, 4))
    assert one.tokens == pytest.approx(4 * four.tokens)
    assert four.passes <= one.passes
