"""Counts of the work of jobs."""

from dataclasses import replace

import pytest

from rapid.config.jobs import list_jobs
from rapid.config.params import load
from rapid.cost.memory import with_passes
from rapid.cost.work import AT_A_TIME, job_work, train_work
from rapid.sampling import BATCH
from tests.cost.conftest import EXPECTED, computing, spec_of

SPREAD = replace(EXPECTED, spread=1.0)


def count_work(params, name, expected=SPREAD, benchmark="math"):
    return job_work(spec_of(params, name, benchmark), params, lambda *pair: expected)


def test_as_many_are_sampled_at_a_time_as_the_plan_counts():
    assert AT_A_TIME == BATCH  # the plan's own, since what samples takes seconds to import


@pytest.mark.parametrize("name", ["pg", "grpo", "naive-grpo", "rapid-H2", "rapid-H16"])
def test_every_algorithm_samples_each_problem_once_an_epoch(params, name):
    """And takes a step for each N_step of its completions, 4."""
    work = count_work(params, name)
    assert work.completions == pytest.approx(64 * 4)
    assert work.steps == 64


def test_an_inference_batch_that_would_not_be_full_is_not_sampled(values):
    """Of 31 problems with H=16, N_step=4 and groups of 4 the first 16 make one, in each epoch."""
    values["benchmarks"]["math"]["train"] = 31
    values["training"]["epochs"] = 2
    assert count_work(load(values), "rapid-H16").steps == 2 * 16
    assert count_work(load(values), "rapid-H4").steps == 2 * 28


def test_lengths_that_differ_eat_up_a_part_of_what_larger_batches_save(params):
    def saved(expected):
        small, large = (count_work(params, name, expected) for name in ("pg", "rapid-H16"))
        return small.decoding_steps / large.decoding_steps

    assert saved(EXPECTED) == pytest.approx(16)
    assert 1 < saved(SPREAD) < 16


def test_sampling_part_of_a_step_at_a_time_takes_more_decoding_steps(values):
    """naive-grpo samples N_step by default, and takes as many as grpo."""
    naive, grpo = (count_work(load(values), name) for name in ("naive-grpo", "grpo"))
    assert naive.decoding_steps == pytest.approx(grpo.decoding_steps)
    values["naive_grpo"]["sampling_batch"] = 2
    assert count_work(load(values), "naive-grpo").decoding_steps > grpo.decoding_steps


def test_processes_wait_for_the_longest_completion_of_all(paper):
    """Of MBPP+, 264 problems three times over, 4 processes sample one completion each."""
    work = count_work(paper, "pg", benchmark="mbpp_plus")
    assert work.decoding_steps == pytest.approx(264 * 3 * SPREAD.longest(4))


@pytest.mark.parametrize("micro_batch", [1, 2, 4, 8])
def test_a_micro_batch_is_as_wide_as_its_longest_completion_and_has_a_prompt(params, micro_batch):
    spec = with_passes(spec_of(params, "pg"), micro_batch)
    work, width = train_work(spec, 10, SPREAD, run=1.0), min(4, micro_batch)
    assert work.passes == pytest.approx(10 * 4 / width)
    tokens = SPREAD.prompt + width * SPREAD.longest(width)
    assert work.tokens == pytest.approx(work.passes * tokens)


@pytest.mark.parametrize(("demonstrations", "steps"), [(None, 20 * 3), (100, 7 * 3)])
def test_sft_takes_its_demonstrations_three_times(params, demonstrations, steps):
    """16 a step: what was made, or 64 x 5 that the teacher had right."""
    sft = params.sft.model_copy(update={"demonstrations": demonstrations})
    assert count_work(params.model_copy(update={"sft": sft}), "sft").steps == steps


def test_dapo_samples_more_the_fewer_groups_have_a_signal(params):
    few, many = (
        count_work(params, "dapo", replace(SPREAD, signal=signal)).completions
        for signal in (0.2, 0.9)
    )
    assert few > many > 64 * 4


def test_a_kl_term_needs_the_references_forward_pass(params):
    free = params.model_copy(update={"grpo": params.grpo.model_copy(update={"beta": 0.0})})
    all_alike = replace(EXPECTED, signal=1.0)
    with_it, without = (count_work(section, "grpo", all_alike) for section in (params, free))
    assert with_it.tokens == pytest.approx(without.tokens * 4 / 3)
    assert with_it.passes == pytest.approx(without.passes * 4 / 3)


@pytest.mark.parametrize(
    ("precision", "weighted", "micro_batch", "forwards"),
    [
        ("float32", True, 4, 0),
        ("float32", True, 2, 1),  # weights of the group's other half
        ("float32", False, 2, 0),
        ("bfloat16", False, 2, 1),  # log mu
        ("bfloat16", True, 2, 2),
    ],
)
def test_later_steps_compute_log_probs_anew(params, precision, weighted, micro_batch, forwards):
    """Of 3 of 4 steps, by a forward pass: a third of one forward and backward."""

    def tokens(precision, weighted):
        spec = spec_of(params, "rapid-H4")
        settings = {"precision": precision, "micro_batch": micro_batch}
        training = spec.training.model_copy(update=settings)
        objective = spec.objective.model_copy(update={"weighted": weighted})
        spec = spec.model_copy(update={"training": training, "objective": objective})
        return train_work(spec, 64, SPREAD, run=1.0).tokens

    ratio = tokens(precision, weighted) / tokens("float32", False)
    assert ratio == pytest.approx(1 + forwards * 3 / 4 / 3)


def test_processes_share_a_steps_tokens(paper):
    single, shared = (count_work(p, "grpo").tokens for p in (computing(paper, processes=1), paper))
    assert shared == pytest.approx(single / 4)
    sft = with_passes(spec_of(paper, "sft"), 12)
    alone, four = (train_work(computing(sft, processes=n), 10, EXPECTED) for n in (1, 4))
    assert alone.tokens == pytest.approx(4 * four.tokens)
    assert four.passes == pytest.approx(alone.passes / 4)


def test_transformers_computes_rows_that_have_ended_and_vllm_does_not(params):
    spec = spec_of(params, "pg")
    specs = (computing(spec, sampler=name) for name in ("transformers", "vllm"))
    static, continuous = (train_work(spec, 64, SPREAD) for spec in specs)
    assert static.decoding_steps == pytest.approx(continuous.decoding_steps)
    assert static.rows == pytest.approx(4 * static.decoding_steps)
    assert continuous.rows == pytest.approx(64 * 4 * SPREAD.length)


def test_vllm_refills_the_places_of_completions_that_have_ended(paper):
    evaluations = (job.spec for job in list_jobs(paper) if job.stage == "evaluate")
    spec = next(spec for spec in evaluations if spec.run.benchmark == "minif2f")
    work = job_work(spec, paper, lambda *pair: EXPECTED)
    assert work.completions == 244 * 8
    assert work.rows / work.decoding_steps == pytest.approx(256)
