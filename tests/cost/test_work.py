"""What jobs do, counted."""

from dataclasses import replace

import pytest

from rapid.config.specs import Run, evaluate_spec
from rapid.cost.work import evaluation_work, optimizer_steps, rl_work, sft_work
from tests.cost.conftest import EXPECTED, spec_of

SPREAD = replace(EXPECTED, spread=1.0)


def counted(params, name, expected=SPREAD, benchmark="math"):
    spec = spec_of(params, name, benchmark)
    return rl_work(spec, optimizer_steps(spec, params.benchmarks[benchmark].train), expected)


def decoding_steps(work):
    return sum(one.calls * one.steps for one in work.sampling)


@pytest.mark.parametrize("name", ["pg", "grpo", "naive-grpo", "rapid-H2", "rapid-H16"])
def test_every_algorithm_samples_each_problem_once_an_epoch(params, name):
    work = counted(params, name)
    assert work.completions == pytest.approx(64 * 4)
    assert work.graded == pytest.approx(64 * 4)


def test_larger_batches_take_fewer_decoding_steps(params):
    found = [decoding_steps(counted(params, f"rapid-H{h}")) for h in (1, 2, 4, 8, 16)]
    assert found == sorted(found, reverse=True)


def test_lengths_that_differ_eat_up_a_part_of_what_larger_batches_save(params):
    def saved(expected):
        one, many = counted(params, "pg", expected), counted(params, "rapid-H16", expected)
        return decoding_steps(one) / decoding_steps(many)

    assert saved(EXPECTED) == pytest.approx(16)
    assert 1 < saved(SPREAD) < 16


def test_naive_grpo_takes_more_decoding_steps_than_grpo(params):
    assert decoding_steps(counted(params, "naive-grpo")) > decoding_steps(counted(params, "grpo"))


def test_processes_that_sample_one_completion_each_wait_alike(paper):
    """Nothing is left to split: naive-grpo is grpo."""
    naive, grpo = (counted(paper, name, SPREAD, "mbpp_plus") for name in ("naive-grpo", "grpo"))
    assert decoding_steps(naive) == pytest.approx(decoding_steps(grpo))


def test_dapo_samples_more_the_fewer_groups_have_a_signal(params):
    few, many = (
        counted(params, "dapo", replace(SPREAD, signal=signal)).completions for signal in (0.2, 0.9)
    )
    assert few > many > 64 * 4


def test_only_a_kl_term_needs_the_reference(params):
    assert counted(params, "grpo").training.reference_tokens > 0
    assert counted(params, "pg").training.reference_tokens == 0


def test_log_mu_is_computed_where_the_sampler_is_not_exact(params, paper):
    assert counted(params, "rapid-H4").training.forward_tokens == 0
    bfloat16 = counted(paper, "rapid-H4").training
    assert bfloat16.forward_tokens == pytest.approx(3 / 4 * bfloat16.tokens)


def test_processes_share_a_large_steps_tokens(paper):
    one = paper.model_copy(update={"compute": paper.compute.model_copy(update={"processes": 1})})
    whole, shared = counted(one, "grpo").training.tokens, counted(paper, "grpo").training.tokens
    assert shared == pytest.approx(whole / 4)


def test_transformers_computes_rows_that_have_ended_and_vllm_does_not(params):
    spec = spec_of(params, "pg")
    vllm = spec.model_copy(update={"compute": spec.compute.model_copy(update={"sampler": "vllm"})})
    static, continuous = (rl_work(one, 64, SPREAD).sampling[0] for one in (spec, vllm))
    assert static.steps == pytest.approx(continuous.steps)
    assert static.rows == pytest.approx(4 * static.steps)
    assert continuous.rows == pytest.approx(4 * continuous.tokens)


def test_snapshots_are_evaluated_too(params):
    def completions(name):
        run = Run(benchmark="math", model="tiny-qwen2", algorithm=name, seed=1)
        return evaluation_work(evaluate_spec(params, run), 40, EXPECTED).completions

    assert completions("pg") == 40 * 8
    assert completions("pg,epochs=2,snapshots=7") == 40 * 8 * 8


def test_sft_costs_in_proportion_to_its_steps(params):
    spec = spec_of(params, "sft")
    one, two = (sft_work(spec, steps, EXPECTED).training.tokens for steps in (10, 20))
    assert two == pytest.approx(2 * one)
