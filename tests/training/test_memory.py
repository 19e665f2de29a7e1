"""Micro-batches fit in memory: free memory, the largest micro-batch, and smaller ones on errors."""

import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import psutil
import pytest
import torch
from accelerate.utils import DistributedType

from rapid.training import memory
from rapid.training.memory import find_largest_batch, is_out_of_memory, measure_peak
from rapid.training.micro_batches import MicroBatchLimit
from rapid.training.trl.micro_batch_trainer import MicroBatchTrainer
from tests.conftest import ROOT
from tests.training import limited_worker, loops

CPU = torch.device("cpu")
MB = 2**20
GET_TOTAL = "rapid.training.trainer.get_total_memory"
FIND_LARGEST = "rapid.training.trl.micro_batch_trainer.find_largest_batch"


def test_failed_allocations_are_recognized():
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(error.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    assert not is_out_of_memory(ValueError("out of memory"))


def test_peak_is_most_memory_held_at_once():
    def allocate_tensors():
        for _ in range(3):
            torch.ones(64 * MB, dtype=torch.uint8)

    assert measure_peak(CPU, allocate_tensors) == pytest.approx(64 * MB, rel=0.1)
    assert measure_peak(CPU, lambda: None) < 4 * MB


def test_peak_is_kept_until_it_is_reset(monkeypatch, tmp_path):
    memory.reset_peak(CPU)
    before = memory.read_peak(CPU)
    torch.ones(64 * MB, dtype=torch.uint8)  # and released at once
    assert memory.read_peak(CPU) - before == pytest.approx(64 * MB, rel=0.1)
    memory.reset_peak(CPU)
    assert memory.read_peak(CPU) - before < 4 * MB
    monkeypatch.setattr(memory, "PEAK_RESET_FILE", tmp_path / "missing")  # as on macOS
    assert memory.read_peak(CPU) is None


def test_available_memory_respects_address_space_limit(monkeypatch):
    used = psutil.Process().memory_info().vms
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _: (used + 300 * MB, -1))
    assert 250 * MB < memory.get_available_memory(CPU) <= 300 * MB
    assert memory.get_total_memory(CPU) == used + 300 * MB


def test_memory_respects_limits_of_cgroups(monkeypatch, tmp_path):
    """The parent's limit is lower, and its page cache counts as free."""
    unlimited = memory.get_total_memory(CPU)
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_read_group_name", lambda: "job/step")
    files = {"memory.current": f"{20 * MB}", "memory.stat": f"inactive_file {4 * MB}\n"}
    for folder, limit in (("job", f"{50 * MB}"), ("job/step", "max")):
        (tmp_path / folder).mkdir()
        for name, text in (files | {"memory.max": limit}).items():
            (tmp_path / folder / name).write_text(text)
    assert memory.get_total_memory(CPU) == 50 * MB < unlimited
    assert memory.get_available_memory(CPU) == 34 * MB


class SimulatedMemory:
    """Replaces the memory: attempts take `base` bytes and more per completion, at most `limit`."""

    def __init__(self, monkeypatch, available, base, bytes_per_completion, limit=float("inf")):
        self.base, self.bytes_per_completion = base, bytes_per_completion
        self.limit, self.tried = limit, []
        monkeypatch.setattr(
            memory, "get_available_memory", lambda device: available / memory.USABLE_SHARE
        )
        monkeypatch.setattr(memory, "measure_peak", self.measure_peak)

    def attempt(self, count, share):
        self.tried.append(count * share)
        if self.base + self.bytes_per_completion * count * share > self.limit:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    def measure_peak(self, device, work):
        work()
        return self.base + self.bytes_per_completion * self.tried[-1]


@pytest.mark.parametrize(
    ("limit", "at_most", "reserved", "count", "tried"),
    [
        (float("inf"), 64, 0, 9, [9]),
        (float("inf"), 4, 0, 4, [4]),
        (float("inf"), 64, 500, 4, [4]),  # 500 of the 1000 that are available
        (700, 64, 0, 4, [9, 4]),  # the estimate of 9 did not fit
    ],
)
def test_largest_micro_batch_that_fits_is_found(
    monkeypatch, limit, at_most, reserved, count, tried
):
    simulated_memory = SimulatedMemory(
        monkeypatch, available=1000, base=100, bytes_per_completion=100, limit=limit
    )
    assert find_largest_batch(simulated_memory.attempt, at_most, CPU, reserved=reserved) == count
    assert simulated_memory.tried == [0.5, 0.5, 1, *tried]


@pytest.mark.parametrize(
    ("limit", "message"),
    [(float("inf"), r"needs 0\.00 GB"), (700, "needs more memory than there is")],
)
def test_error_if_no_completion_fits(monkeypatch, limit, message):
    simulated_memory = SimulatedMemory(
        monkeypatch, available=1000, base=100, bytes_per_completion=1000, limit=limit
    )
    with pytest.raises(MemoryError, match=message):
        find_largest_batch(simulated_memory.attempt, 64, CPU)


def test_error_shows_no_negative_memory(monkeypatch):
    simulated_memory = SimulatedMemory(
        monkeypatch, available=1000, base=100, bytes_per_completion=100
    )
    with pytest.raises(MemoryError, match=r"; 0\.00 GB are left$"):
        find_largest_batch(simulated_memory.attempt, 64, CPU, reserved=2000)


def test_other_errors_of_attempts_are_raised(monkeypatch, tmp_path):
    def attempt(count, share):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        find_largest_batch(attempt, 4, CPU)
    monkeypatch.setattr(memory, "PEAK_RESET_FILE", tmp_path / "clear_refs")  # as on macOS
    with pytest.raises(ValueError, match=r"^micro_batch: auto .*: set a number instead"):
        find_largest_batch(attempt, 4, CPU)


# In training --------------------------------------------------------------------------------------


class LimitedTrainer(loops.ScriptedTrainer):
    """Runs out of memory with more than `limit` completions, after it ran part of a step."""

    limit = 3

    def _backpropagate(self, model, micro_batch, *, last, **named):
        loss = super()._backpropagate(model, micro_batch, last=last, **named)
        if len(micro_batch.get("local_rows", micro_batch["rewards"])) > self.limit:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return loss


class UnlimitedTrainer(LimitedTrainer):
    limit = 99


SIZES = {"n_step": 16, "micro_batch_size": 16, "max_steps": 8, "skip_zero_groups": False}


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("objective", ["rapid", "grpo", "trl"])
def test_out_of_memory_halves_micro_batches_with_same_result(
    objective, pack, toy_model, tmp_path, caplog
):
    unlimited, limited = (
        loops.train_rapid(
            toy_model, tmp_path, objective, trainer_class=trainer_class, pack=pack, **SIZES
        )
        for trainer_class in (UnlimitedTrainer, LimitedTrainer)
    )
    assert unlimited.halvings == 0
    assert limited.halvings >= 2 and (pack or limited.halvings == 3)
    (message,) = [message for message in caplog.messages if "memory ran out" in message]
    assert "in a micro-batch of 16 completions." in message
    loops.assert_same_training(limited, unlimited, toy_model)
    shares = loops.logged_values(limited, "rapid/run")
    # No micro-batch counts twice.
    assert shares == pytest.approx(loops.logged_values(unlimited, "rapid/run"))


def test_out_of_memory_with_one_completion_is_raised(toy_model, tmp_path):
    class FullMemoryTrainer(LimitedTrainer):
        limit = 0

    with pytest.raises(RuntimeError, match="can't allocate memory"):
        loops.train_rapid(toy_model, tmp_path, "rapid", trainer_class=FullMemoryTrainer, **SIZES)


SHARING = [
    pytest.param(1, DistributedType.NO, False, id="alone"),
    pytest.param(1, DistributedType.DEEPSPEED, True, id="deepspeed"),
    pytest.param(2, DistributedType.MULTI_GPU, True, id="two-processes"),
]


def fake_trainer(processes: int, kind: DistributedType, **attributes) -> MicroBatchTrainer:
    trainer = MicroBatchTrainer.__new__(MicroBatchTrainer)
    trainer.accelerator = SimpleNamespace(num_processes=processes, distributed_type=kind)
    vars(trainer).update(attributes)
    return trainer


@pytest.mark.parametrize(("processes", "kind", "shares_gradients"), SHARING)
def test_micro_batches_are_halved_only_if_gradients_can_be_discarded(
    processes, kind, shares_gradients
):
    state = SimpleNamespace(global_step=0)
    trainer = fake_trainer(processes, kind, state=state, _largest_micro_batch=8)
    halvings = []

    def run_out_of_memory_once() -> None:
        halvings.append(trainer.halvings)
        if trainer.halvings == 0:
            raise MemoryError

    with pytest.raises(MemoryError) if shares_gradients else nullcontext():
        trainer._run_with_halving(run_out_of_memory_once)
    assert halvings == ([0] if shares_gradients else [0, 1])


@pytest.mark.parametrize(("processes", "kind", "shares_gradients"), SHARING)
def test_trial_passes_reach_no_hook_that_shares_gradients(processes, kind, shares_gradients):
    model, calls = torch.nn.Linear(2, 1), []
    args = SimpleNamespace(gradient_checkpointing_kwargs=None)
    trainer = fake_trainer(processes, kind, model=model, args=args)
    model.weight.register_post_accumulate_grad_hook(calls.append)  # as DDP and DeepSpeed do
    trainer._try_backward(model(torch.ones(1, 2)).sum())
    assert bool(calls) != shares_gradients


@pytest.mark.parametrize("pack", [False, True])
def test_auto_size_tries_longest_completions_with_same_result(
    pack, toy_model, tmp_path, monkeypatch
):
    """5 of 16 completions fit; the trial has the longest prompt and max_completion_length."""
    tried = []

    def find_five(attempt, at_most, device, reserved):
        attempt(2, 1.0)
        assert (at_most, reserved) == (16, 0)  # plain SGD has no state to reserve
        return 5

    monkeypatch.setattr(FIND_LARGEST, find_five)
    fixed = loops.train_rapid(
        toy_model, tmp_path, "rapid", trainer_class=UnlimitedTrainer, pack=pack, **SIZES
    )
    settings = SIZES | {"micro_batch_size": "auto"}
    auto = loops.build_rapid_trainer(
        toy_model, tmp_path, "rapid", trainer_class=UnlimitedTrainer, pack=pack, **settings
    )
    auto.model.model.register_forward_pre_hook(
        lambda module, args, kwargs: tried.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    auto.train()
    longest = len("long long long prompt 31")
    assert tried[:2] == [(1, longest), (2, 6 - 1)]  # first the shared prompt, then two completions
    assert auto.micro_batch_limit == MicroBatchLimit(5, 5 * (longest + 6) if pack else None)
    loops.assert_same_training(auto, fixed, toy_model)
    auto.halvings = 2
    resumed = loops.build_rapid_trainer(toy_model, tmp_path, "rapid", pack=pack, **settings)
    resumed.load_loop_state(auto.get_loop_state())
    assert (resumed.micro_batch_limit, resumed.halvings) == (auto.micro_batch_limit, 2)


@pytest.mark.parametrize(
    "change",
    [{}, {"micro_batch_size": 1}, {"pack": False}, {"max_completion_length": 5}, {"memory": 1}],
)
def test_size_is_restored_only_with_the_settings_and_memory_it_is_for(
    change, toy_model, tmp_path, monkeypatch
):
    settings = SIZES | {"micro_batch_size": "auto"}
    trainer = loops.build_rapid_trainer(toy_model, tmp_path, "rapid", **settings)
    trainer.micro_batch_limit, trainer.halvings = MicroBatchLimit(5, 200), 2
    state = trainer.get_loop_state()
    changes = dict(change)
    if memory_bytes := changes.pop("memory", None):
        monkeypatch.setattr(GET_TOTAL, lambda device: memory_bytes)
    resumed = loops.build_rapid_trainer(toy_model, tmp_path, "rapid", **settings | changes)
    resumed.load_loop_state(state)
    expected = (None, 0) if change else (MicroBatchLimit(5, 200), 2)
    assert (resumed.micro_batch_limit, resumed.halvings) == expected


def test_memory_for_adam_state_is_reserved(toy_model, tmp_path, monkeypatch):
    reserves = []
    monkeypatch.setattr(
        FIND_LARGEST, lambda attempt, at_most, device, reserved: reserves.append(reserved) or 4
    )
    trainer = loops.train_rapid(
        toy_model, tmp_path, "rapid", optim="adamw_torch", token_budget="auto", max_steps=1
    )
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    assert reserves == [2 * 8 * parameters]  # float64


@pytest.mark.slow
def test_training_stays_within_memory_limit_that_is_lowered(toy_model, tmp_path):
    """With a limited address space, weights are those of fixed micro-batches."""
    saved = tmp_path / "limited.pt"
    command = [sys.executable, "-m", "tests.training.limited_worker", toy_model, tmp_path, saved]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    limited = torch.load(saved)
    fixed = limited_worker.build_limited_trainer(toy_model, tmp_path, micro_batch_size=2)
    fixed.train()
    assert 1 <= limited["completions"] < limited_worker.SIZES["n_step"]
    assert limited["halvings"][1] < limited["halvings"][-1]
    loops.assert_same_learning(
        limited["weights"], loops.get_weights(fixed), loops.get_initial_weights(toy_model)
    )
