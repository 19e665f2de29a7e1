"""On a GPU, trial passes decide whether the completions of a group share a pass of their prompt."""

import pytest
import torch
from accelerate import Accelerator

from rapid.training import gradient_trainer, prompt_sharing
from rapid.training.prompt_sharing import is_sharing_faster
from tests.training import loops

OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory")


@pytest.fixture
def measured_on_cpu(monkeypatch):
    monkeypatch.setattr(gradient_trainer, "MEASURED_DEVICES", {"cpu"})


@pytest.mark.parametrize(
    ("shared", "separate", "expected"),
    [
        ([9, 1, 3, 3], [1, 2, 2, 2], True),  # the first pass of each kind does not count
        ([1, 3, 3, 2], [9, 9, 9, 1], False),
        ([1, 1, 1, 1], [OUT_OF_MEMORY] * 4, True),
        ([OUT_OF_MEMORY] * 4, [OUT_OF_MEMORY] * 4, True),
    ],
)
def test_fastest_pass_after_the_first_decides(shared, separate, expected, monkeypatch):
    seconds = {True: iter(shared), False: iter(separate)}
    now = 0.0

    def run_pass(shares):
        nonlocal now
        duration = next(seconds[shares])
        if isinstance(duration, Exception):
            raise duration
        now += duration

    monkeypatch.setattr(prompt_sharing, "read_synchronized_seconds", lambda: now)
    assert is_sharing_faster(run_pass, Accelerator(cpu=True)) is expected
    assert not [*seconds[True], *seconds[False]]  # all passes were made


def test_other_errors_of_a_trial_pass_are_raised():
    def fail(shares):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        is_sharing_faster(fail, Accelerator(cpu=True))


@pytest.mark.parametrize("is_faster", [True, False])
def test_trial_passes_change_nothing_but_the_choice(
    is_faster, toy_model, tmp_path, monkeypatch, measured_on_cpu
):
    trials = []

    def run_both(run_pass, accelerator):
        for shares in (True, False):
            run_pass(shares)
            trials.append(shares)
        return is_faster

    monkeypatch.setattr(gradient_trainer, "is_sharing_faster", run_both)
    trainer = loops.build_rapid_trainer(toy_model, tmp_path, "rapid", share_prefill=None)
    calls = []
    trainer.model.model.register_forward_pre_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    trainer.train()
    expected = loops.train_rapid(toy_model, tmp_path, "rapid", share_prefill=is_faster)
    assert torch.equal(loops.get_weights(trainer), loops.get_weights(expected))
    assert trials == [True, False]  # in the first of two inference batches only
    assert sum(calls) == trainer.passes * (1 + is_faster) + 3
    resumed = loops.build_rapid_trainer(toy_model, tmp_path, "rapid")
    resumed.load_loop_state(trainer.get_loop_state())
    assert resumed.sharing_is_faster is is_faster


@pytest.mark.parametrize(
    "settings",
    [{"share_prefill": True}, {"share_prefill": False}, {"gradient_checkpointing": True}],
    ids=str,
)
def test_nothing_is_timed_where_there_is_no_choice(
    settings, toy_model, tmp_path, monkeypatch, measured_on_cpu
):
    monkeypatch.setattr(gradient_trainer, "is_sharing_faster", lambda *_: pytest.fail("timed"))
    loops.train_rapid(toy_model, tmp_path, "rapid", max_steps=1, **settings)


def test_no_group_with_a_gradient_postpones_the_choice(
    toy_model, tmp_path, monkeypatch, measured_on_cpu
):
    timed = []
    monkeypatch.setattr(gradient_trainer, "is_sharing_faster", lambda *_: timed.append(1) or True)
    loops.train_rapid(toy_model, tmp_path, "pg", lambda prompts, **_: [1.0] * len(prompts))
    assert not timed


def test_prompts_are_shared_on_a_cpu_without_timing(toy_model, tmp_path, monkeypatch):
    monkeypatch.setattr(gradient_trainer, "is_sharing_faster", lambda *_: pytest.fail("timed"))
    trainer = loops.train_rapid(toy_model, tmp_path, "rapid", share_prefill=None, max_steps=1)
    assert trainer._shares_prompts
