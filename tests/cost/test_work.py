"""Counts of the work of jobs: completions, decoding steps, tokens and micro-batches."""

from dataclasses import replace

import pytest

from rapid.config.jobs import list_jobs
from rapid.config.params import load
from rapid.cost.memory import set_micro_batch
from rapid.cost.work import TRANSFORMERS_BATCH, count_job_work, count_train_work
from rapid.sampling import BATCH_SIZE
from tests.cost.conftest import EXPECTED, change_compute, make_spec

SPREAD = replace(EXPECTED, spread=1.0)  # completions of different lengths


def count_work(params, name, expected=SPREAD, benchmark="math"):
    return count_job_work(make_spec(params, name, benchmark), params, lambda *pair: expected)


def test_plan_counts_the_sampling_batch_of_transformers():
    assert TRANSFORMERS_BATCH == BATCH_SIZE  # a copy, since rapid.sampling takes seconds to import


@pytest.mark.parametrize("name", ["pg", "grpo", "naive-grpo", "rapid-H2", "rapid-H16"])
def test_every_algorithm_samples_each_problem_once_per_epoch(params, name):
    """Each algorithm also takes an optimizer step for each N_step = 4 completions."""
    work = count_work(params, name)
    assert work.completions == pytest.approx(64 * 4)
    assert work.steps == 64


def test_incomplete_inference_batch_is_not_sampled(values):
    """With H = 16, N_step = 4 and groups of 4, an inference batch has 16 of the 31 problems."""
    values["benchmarks"]["math"]["train"] = 31
    values["training"]["epochs"] = 2
    assert count_work(load(values), "rapid-H16").steps == 2 * 16
    assert count_work(load(values), "rapid-H4").steps == 2 * 28


def test_varying_lengths_reduce_the_saving_of_larger_batches(params):
    def decoding_ratio(expected):
        small, large = (count_work(params, name, expected) for name in ("pg", "rapid-H16"))
        return small.decoding_steps / large.decoding_steps

    assert decoding_ratio(EXPECTED) == pytest.approx(16)
    assert 1 < decoding_ratio(SPREAD) < 16


def test_sampling_smaller_batches_takes_more_decoding_steps(values):
    """By default naive-grpo samples N_step at a time, and takes as many decoding steps as grpo."""
    naive, grpo = (count_work(load(values), name) for name in ("naive-grpo", "grpo"))
    assert naive.decoding_steps == pytest.approx(grpo.decoding_steps)
    values["naive_grpo"]["sampling_batch"] = 2
    assert count_work(load(values), "naive-grpo").decoding_steps > grpo.decoding_steps


def test_processes_wait_for_the_longest_completion_of_all(paper):
    """4 processes sample one completion each, for 264 problems of MBPP+ in three epochs."""
    work = count_work(paper, "pg", benchmark="mbpp_plus")
    assert work.decoding_steps == pytest.approx(264 * 3 * SPREAD.estimate_longest(4))


@pytest.mark.parametrize("micro_batch", [1, 2, 4, 8])
def test_micro_batch_has_a_prompt_and_is_padded_to_its_longest_completion(params, micro_batch):
    spec = set_micro_batch(make_spec(params, "pg"), micro_batch)
    work, width = count_train_work(spec, 10, SPREAD, trained_share=1.0), min(4, micro_batch)
    assert work.passes == pytest.approx(10 * 4 / width)
    tokens = SPREAD.prompt + width * SPREAD.estimate_longest(width)
    assert work.tokens == pytest.approx(work.passes * tokens)


@pytest.mark.parametrize(("demonstrations", "steps"), [(None, 20 * 3), (100, 7 * 3)])
def test_sft_trains_on_its_demonstrations_for_three_epochs(params, demonstrations, steps):
    """A step has 16 of the demonstrations: of 100 generated ones, or of 64 x 5 by the teacher."""
    sft = params.sft.model_copy(update={"demonstrations": demonstrations})
    assert count_work(params.model_copy(update={"sft": sft}), "sft").steps == steps


def test_dapo_samples_more_when_fewer_groups_have_a_signal(params):
    with_low_signal, with_high_signal = (
        count_work(params, "dapo", replace(SPREAD, signal=signal)).completions
        for signal in (0.2, 0.9)
    )
    assert with_low_signal > with_high_signal > 64 * 4


def test_kl_term_needs_a_forward_pass_of_the_reference_policy(params):
    without_kl = params.model_copy(update={"grpo": params.grpo.model_copy(update={"beta": 0.0})})
    expected = replace(EXPECTED, signal=1.0)
    with_reference, without = (
        count_work(section, "grpo", expected) for section in (params, without_kl)
    )
    assert with_reference.tokens == pytest.approx(without.tokens * 4 / 3)
    assert with_reference.passes == pytest.approx(without.passes * 4 / 3)


@pytest.mark.parametrize(
    ("precision", "weighted", "micro_batch", "forwards"),
    [
        ("float32", True, 4, 0),
        ("float32", True, 2, 1),  # importance weights of the other half of the group
        ("float32", False, 2, 0),
        ("bfloat16", False, 2, 1),  # log mu
        ("bfloat16", True, 2, 2),
    ],
)
def test_later_steps_recompute_log_probs(params, precision, weighted, micro_batch, forwards):
    """3 of 4 steps take forward passes, each a third of a forward and backward pass."""

    def tokens(precision, weighted):
        spec = make_spec(params, "rapid-H4")
        settings = {"precision": precision, "micro_batch": micro_batch}
        training = spec.training.model_copy(update=settings)
        objective = spec.objective.model_copy(update={"weighted": weighted})
        spec = spec.model_copy(update={"training": training, "objective": objective})
        return count_train_work(spec, 64, SPREAD, trained_share=1.0).tokens

    ratio = tokens(precision, weighted) / tokens("float32", False)
    assert ratio == pytest.approx(1 + forwards * 3 / 4 / 3)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_reuse_repeats_steps_and_neither_sampling_nor_log_probs(params, precision):
    """In bfloat16 a forward pass computes log mu, with `reuse` also that of the first step."""
    expected = replace(EXPECTED, signal=1.0, rewarded=1.0)
    training = params.training.model_copy(update={"precision": precision})
    params = params.model_copy(update={"training": training})
    once, twice = (count_work(params, f"rapid-H4{reuse}", expected) for reuse in ("", ",reuse=2"))
    for name in ("completions", "decoding_steps", "rows", "batches"):
        assert getattr(twice, name) == pytest.approx(getattr(once, name))
    assert (once.steps, twice.steps) == (64, 128)
    forwards = (0, 0) if precision == "float32" else (3 / 4, 1)  # of the inference batch
    ratio = (2 + forwards[1] / 3) / (1 + forwards[0] / 3)
    assert twice.tokens == pytest.approx(ratio * once.tokens)
    assert twice.passes == pytest.approx(ratio * once.passes)


def test_processes_divide_the_tokens_of_a_step(paper):
    single, shared = (
        count_work(p, "grpo").tokens for p in (change_compute(paper, processes=1), paper)
    )
    assert shared == pytest.approx(single / 4)
    sft = set_micro_batch(make_spec(paper, "sft"), 12)
    on_one, on_four = (
        count_train_work(change_compute(sft, processes=n), 10, EXPECTED) for n in (1, 4)
    )
    assert on_one.tokens == pytest.approx(4 * on_four.tokens)
    assert on_four.passes == pytest.approx(on_one.passes / 4)


def test_transformers_computes_finished_rows_and_vllm_does_not(params):
    spec = make_spec(params, "pg")
    specs = (change_compute(spec, sampler=name) for name in ("transformers", "vllm"))
    static, continuous = (count_train_work(spec, 64, SPREAD) for spec in specs)
    assert static.decoding_steps == pytest.approx(continuous.decoding_steps)
    assert static.rows == pytest.approx(4 * static.decoding_steps)
    assert continuous.rows == pytest.approx(64 * 4 * SPREAD.length)


def test_vllm_starts_a_completion_when_another_ends(paper):
    evaluations = (job.spec for job in list_jobs(paper) if job.stage == "evaluate")
    spec = next(spec for spec in evaluations if spec.run.benchmark == "minif2f")
    work = count_job_work(spec, paper, lambda *pair: EXPECTED)
    assert work.completions == 244 * 8
    assert work.rows / work.decoding_steps == pytest.approx(256)


@pytest.mark.parametrize(("samples", "completions"), [(None, 8 + 3 * 8), (2, 8 + 3 * 2)])
def test_snapshots_are_evaluated_on_their_own_number_of_completions(values, samples, completions):
    values["tables"]["main"]["algorithms"] = ["pg,snapshots=3"]
    values["evaluation"]["snapshot_samples"] = samples
    params = load(values)
    (spec, *_) = (
        job.spec
        for job in list_jobs(params)
        if job.stage == "evaluate" and job.spec.run.algorithm == "pg,snapshots=3"
    )
    work = count_job_work(spec, params, lambda *pair: EXPECTED)
    problems = params.benchmarks[spec.run.benchmark].test
    assert (work.loads, work.completions) == (4, problems * completions)
