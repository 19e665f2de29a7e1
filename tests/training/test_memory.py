"""Micro-batches that memory allows: what is left, the largest one, and some that ran out of it."""

import subprocess
import sys

import psutil
import pytest
import torch

from rapid.training import memory
from rapid.training.memory import find_largest_batch, is_out_of_memory, measure_peak
from rapid.training.micro_batches import MicroBatchLimit
from tests.conftest import ROOT
from tests.training import limited_worker, loops

CPU = torch.device("cpu")
MB = 2**20
FIND_LARGEST = "rapid.training.trl.micro_batch_trainer.find_largest_batch"


def test_a_failed_allocation_is_distinguished_from_other_errors():
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(error.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    assert not is_out_of_memory(ValueError("out of memory"))


def test_the_peak_of_some_work_is_what_it_held_at_most():
    def work():
        for _ in range(3):
            torch.ones(64 * MB, dtype=torch.uint8)

    assert measure_peak(CPU, work) == pytest.approx(64 * MB, rel=0.1)
    assert measure_peak(CPU, lambda: None) < 4 * MB


def test_available_is_what_a_limit_of_the_address_space_leaves(monkeypatch):
    used = psutil.Process().memory_info().vms
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _: (used + 300 * MB, -1))
    assert 250 * MB < memory.available_memory(CPU) <= 300 * MB


class Allocations:
    """A base, and so many bytes a completion; above a limit there is an allocator's error."""

    def __init__(self, monkeypatch, available, base, each, limit=float("inf")):
        self.base, self.each, self.limit, self.tried = base, each, limit, []
        monkeypatch.setattr(memory, "available_memory", lambda device: available / memory.USABLE)
        monkeypatch.setattr(memory, "measure_peak", self.measure_peak)

    def attempt(self, count, share):
        self.tried.append(count * share)
        if self.base + self.each * count * share > self.limit:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    def measure_peak(self, device, work):
        work()
        return self.base + self.each * self.tried[-1]


@pytest.mark.parametrize(
    ("limit", "at_most", "reserved", "count", "tried"),
    [
        (float("inf"), 64, 0, 9, [9]),
        (float("inf"), 4, 0, 4, [4]),
        (float("inf"), 64, 500, 4, [4]),  # 500 of 1000 / USABLE
        (700, 64, 0, 4, [9, 4]),  # it was thought to fit
    ],
)
def test_the_largest_micro_batch_is_what_fits(monkeypatch, limit, at_most, reserved, count, tried):
    allocations = Allocations(monkeypatch, available=1000, base=100, each=100, limit=limit)
    assert find_largest_batch(allocations.attempt, at_most, CPU, reserved=reserved) == count
    assert allocations.tried == [0.5, 0.5, 1, *tried]


@pytest.mark.parametrize(
    ("limit", "message"),
    [(float("inf"), r"needs 0\.00 GB"), (700, "needs more memory than there is")],
)
def test_that_not_one_completion_fits_is_an_error(monkeypatch, limit, message):
    allocations = Allocations(monkeypatch, available=1000, base=100, each=1000, limit=limit)
    with pytest.raises(MemoryError, match=message):
        find_largest_batch(allocations.attempt, 64, CPU)


def test_other_errors_are_raised(monkeypatch, tmp_path):
    def attempt(count, share):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        find_largest_batch(attempt, 4, CPU)
    monkeypatch.setattr(memory, "RESET", tmp_path / "clear_refs")  # of another system
    with pytest.raises(ValueError, match="set a number instead"):
        find_largest_batch(attempt, 4, CPU)


# In training --------------------------------------------------------------------------------------


class Limited(loops.Recorded, loops.ScriptedTrainer):
    """Memory runs out with more than `limit` completions, after part of a step was run."""

    limit = 3

    def _backpropagate(self, model, micro_batch, *, last):
        loss = super()._backpropagate(model, micro_batch, last=last)
        if len(micro_batch.get("local_rows", micro_batch["rewards"])) > self.limit:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return loss


class Unlimited(Limited):
    limit = 99


SIZES = {"n_step": 16, "micro_batch_size": 16, "max_steps": 8, "skip_zero_groups": False}


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("objective", ["rapid", "grpo", "trl"])
def test_where_memory_runs_out_micro_batches_are_halved_and_the_gradient_stays(
    objective, pack, toy_model, tmp_path, caplog
):
    unlimited, limited = (
        loops.run(toy_model, tmp_path, objective, trainer=kind, pack=pack, **SIZES)
        for kind in (Unlimited, Limited)
    )
    assert unlimited.halvings == 0
    assert limited.halvings >= 2 and (pack or limited.halvings == 3)
    (message,) = [message for message in caplog.messages if "memory ran out" in message]
    assert "in a micro-batch of 16." in message
    loops.assert_learned_alike(
        loops.weights(limited), loops.weights(unlimited), loops.untrained(toy_model)
    )
    shares = loops.logged(limited, "rapid/run")
    assert shares == pytest.approx(loops.logged(unlimited, "rapid/run"))  # none counts twice


def test_where_one_completion_is_too_large_the_error_is_the_allocators(toy_model, tmp_path):
    class Full(Limited):
        limit = 0

    with pytest.raises(RuntimeError, match="can't allocate memory"):
        loops.run(toy_model, tmp_path, "rapid", trainer=Full, **SIZES)


@pytest.mark.parametrize("pack", [False, True])
def test_auto_tries_the_longest_completions_and_learns_the_same(
    pack, toy_model, tmp_path, monkeypatch
):
    """Of 16 completions of a step 5 fit; what is tried has the longest prompt and the limit."""
    tried = []

    def choose(attempt, at_most, device, reserved):
        attempt(2, 1.0)
        assert (at_most, reserved) == (16, 0)  # plain SGD keeps nothing
        return 5

    monkeypatch.setattr(FIND_LARGEST, choose)
    plain = loops.run(toy_model, tmp_path, "rapid", trainer=Unlimited, pack=pack, **SIZES)
    settings = SIZES | {"micro_batch_size": "auto"}
    auto = loops.build(toy_model, tmp_path, "rapid", trainer=Unlimited, pack=pack, **settings)
    auto.model.model.register_forward_pre_hook(
        lambda module, args, kwargs: tried.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    auto.train()
    longest = len("long long long prompt 31")
    assert tried[:2] == [(1, longest), (2, 6 - 1)]  # the prompt, which both share, and both
    assert auto.micro_batch_limit == MicroBatchLimit(5, 5 * (longest + 6) if pack else None)
    loops.assert_learned_alike(
        loops.weights(auto), loops.weights(plain), loops.untrained(toy_model)
    )
    auto.halvings = 2
    resumed = loops.build(toy_model, tmp_path, "rapid", **settings)
    resumed.load_loop_state(auto.loop_state())
    assert (resumed.micro_batch_limit, resumed.halvings) == (auto.micro_batch_limit, 2)


def test_an_adams_state_is_reserved(toy_model, tmp_path, monkeypatch):
    reserves = []
    monkeypatch.setattr(
        FIND_LARGEST, lambda attempt, at_most, device, reserved: reserves.append(reserved) or 4
    )
    trainer = loops.run(
        toy_model, tmp_path, "rapid", optim="adamw_torch", token_budget="auto", max_steps=1
    )
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    assert reserves == [2 * 8 * parameters]  # float64


def test_a_limit_of_memory_is_kept_to_and_survived_where_it_is_lowered(toy_model, tmp_path):
    """Of a process whose address space is limited; the weights are those of fixed micro-batches."""
    saved = tmp_path / "limited.pt"
    command = [sys.executable, "-m", "tests.training.limited_worker", toy_model, tmp_path, saved]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    limited = torch.load(saved)
    fixed = limited_worker.build(toy_model, tmp_path, micro_batch_size=2)
    fixed.train()
    assert 1 <= limited["completions"] < limited_worker.SIZES["n_step"]
    assert limited["halvings"][1] < limited["halvings"][-1]
    loops.assert_learned_alike(limited["weights"], loops.weights(fixed), loops.untrained(toy_model))
