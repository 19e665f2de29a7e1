"""On a GPU, trial passes decide whether the completions of a group share a pass of their prompt."""

from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DistributedType

from rapid.training import prompt_sharing
from rapid.training.prompt_sharing import PromptSharing
from tests.training import loops

OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory")


@pytest.fixture
def measured_on_cpu(monkeypatch):
    monkeypatch.setattr(prompt_sharing, "MEASURED_DEVICES", {"cpu"})


def build_sharing(
    share_prefill=None, kind=DistributedType.NO, full_determinism=False, disable_tqdm=False
):
    return PromptSharing(
        SimpleNamespace(
            share_prefill=share_prefill,
            full_determinism=full_determinism,
            disable_tqdm=disable_tqdm,
        ),
        SimpleNamespace(device=torch.device("cpu"), distributed_type=kind),
    )


@pytest.mark.parametrize(
    ("shared", "separate", "expected", "times"),
    [
        # The first pass of each kind does not count.
        ([9, 1, 3, 3], [1, 2, 2, 2], True, "1000 ms with sharing, 2000 ms without"),
        ([1, 3, 3, 2], [9, 9, 9, 1], False, "2000 ms with sharing, 1000 ms without"),
        ([1, 1, 1, 1], [OUT_OF_MEMORY] * 4, True, "1000 ms with sharing, out of memory without"),
        ([OUT_OF_MEMORY] * 4, [OUT_OF_MEMORY] * 4, True, "out of memory with sharing"),
    ],
)
def test_fastest_pass_after_the_first_decides(
    shared, separate, expected, times, monkeypatch, measured_on_cpu, capsys
):
    sharing = build_sharing()
    durations = {True: iter(shared), False: iter(separate)}
    now = 0.0

    def run_pass():
        nonlocal now
        duration = next(durations[sharing.is_wanted])
        if isinstance(duration, Exception):
            raise duration
        now += duration

    monkeypatch.setattr(prompt_sharing, "read_synchronized_seconds", lambda: now)
    assert sharing.needs_timing
    sharing.measure(run_pass)
    assert sharing.is_faster is sharing.is_wanted is expected and not sharing.needs_timing
    assert not [*durations[True], *durations[False]]  # all passes were made
    choice = "shared" if expected else "not shared"
    message = f"in training, prompts are {choice} (measured on a micro-batch: {times}"
    assert message in capsys.readouterr().out


def test_choice_is_not_printed_without_progress_bar(measured_on_cpu, capsys):
    sharing = build_sharing(disable_tqdm=True)
    sharing.measure(lambda: None)
    assert sharing.is_faster is not None and not capsys.readouterr().out


def test_other_errors_of_a_trial_pass_are_raised(measured_on_cpu):
    def fail():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        build_sharing().measure(fail)


@pytest.mark.parametrize(
    ("settings", "is_wanted"),
    [
        ({"share_prefill": True}, True),
        ({"share_prefill": False}, False),
        ({"kind": DistributedType.MULTI_GPU}, True),
        ({"kind": DistributedType.DEEPSPEED}, True),
        ({"kind": DistributedType.FSDP}, True),
        ({"full_determinism": True}, True),
    ],
    ids=str,
)
def test_nothing_is_timed_where_there_is_no_choice(settings, is_wanted, measured_on_cpu):
    sharing = build_sharing(**settings)
    assert not sharing.needs_timing
    sharing.is_faster = not is_wanted  # from a run on another machine
    assert sharing.is_wanted is is_wanted


def test_prompts_are_shared_on_a_cpu_without_timing():
    sharing = build_sharing()
    assert sharing.is_wanted and not sharing.needs_timing
    sharing.is_faster = False  # from a run on a GPU
    assert sharing.is_wanted


@pytest.mark.parametrize("is_faster", [True, False])
def test_trial_passes_change_nothing_but_the_choice(
    is_faster, toy_model, tmp_path, monkeypatch, measured_on_cpu
):
    trials = []

    def time_pass(run_pass):
        run_pass()
        torch.rand(1)  # as dropout would
        trials.append(trainer.prompt_sharing.is_faster)
        return float(trials[-1] is not is_faster)

    monkeypatch.setattr(prompt_sharing, "_time_pass", time_pass)
    trainer = loops.build_rapid_trainer(toy_model, tmp_path, "rapid", share_prefill=None)
    trainer.train()
    expected = loops.train_rapid(toy_model, tmp_path, "rapid", share_prefill=is_faster)
    assert torch.equal(loops.get_weights(trainer), loops.get_weights(expected))
    assert trials == [True, False] * 4  # in the first of two inference batches only
    resumed = loops.build_rapid_trainer(toy_model, tmp_path, "rapid")
    resumed.load_loop_state(trainer.get_loop_state())
    assert resumed.prompt_sharing.is_faster is is_faster


@pytest.mark.parametrize(
    "settings",
    [
        {"gradient_checkpointing": True},
        {"micro_batch_size": 1, "pack": False},  # no micro-batch has two completions of a prompt
        {"objective": "pg", "reward": lambda prompts, **_: [1.0] * len(prompts)},  # no gradient
    ],
    ids=["checkpointing", "single rows", "equal rewards"],
)
def test_batches_without_shared_prompts_are_not_timed(
    settings, toy_model, tmp_path, monkeypatch, measured_on_cpu
):
    monkeypatch.setattr(PromptSharing, "measure", lambda *_: pytest.fail("timed"))
    loops.train_rapid(toy_model, tmp_path, **{"objective": "rapid", "max_steps": 1} | settings)


def test_auto_limit_leaves_room_for_passes_without_sharing(
    toy_model, tmp_path, monkeypatch, measured_on_cpu
):
    widths = []

    def find_four(attempt, *_):
        hook = trainer.model.model.register_forward_pre_hook(
            lambda module, args, kwargs: widths.append(kwargs["input_ids"].size(1)),
            with_kwargs=True,
        )
        attempt(4, 1.0)
        hook.remove()
        return 4

    monkeypatch.setattr("rapid.training.trl.micro_batch_trainer.find_largest_batch", find_four)
    monkeypatch.setattr(prompt_sharing, "_time_pass", lambda run_pass: 1.0)
    trainer = loops.build_rapid_trainer(
        toy_model, tmp_path, "rapid", micro_batch_size="auto", share_prefill=None, max_steps=1
    )
    trainer.train()
    assert widths == [len("long long long prompt 31") + 6]  # one pass of prompt and completion


def test_memory_of_trial_passes_is_not_reported(monkeypatch, measured_on_cpu):
    resets = []
    monkeypatch.setattr(prompt_sharing, "reset_peak", resets.append)
    build_sharing().measure(lambda: None)
    assert resets == [torch.device("cpu")]
