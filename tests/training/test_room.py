"""Passes that memory allows: what is left, the largest pass, and passes that ran out of it."""

import subprocess
import sys

import pytest
import torch

from rapid.training import room
from rapid.training.passes import PassSize
from rapid.training.room import is_out_of_memory, largest_pass, taken
from tests.conftest import ROOT
from tests.training import limited_worker, loops

CPU = torch.device("cpu")
MB = 2**20


def test_what_a_failed_allocation_says_is_told_from_other_errors():
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

    assert taken(CPU, work) == pytest.approx(64 * MB, rel=0.1)
    assert taken(CPU, lambda: None) < 4 * MB


def test_room_is_what_a_limit_leaves():
    code = (
        "import resource, torch; from rapid.training.room import room\n"
        "import psutil; own = psutil.Process().memory_info().vms\n"
        "resource.setrlimit(resource.RLIMIT_AS, (own + 300 * 2**20, resource.RLIM_INFINITY))\n"
        "print(room(torch.device('cpu')) / 2**20)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert 250 < float(done.stdout) <= 300


class Model:
    """Takes a base, and so many bytes a completion; a limit is an error, as of an allocator."""

    def __init__(self, monkeypatch, available, base, each, limit=float("inf")):
        self.base, self.each, self.limit, self.runs = base, each, limit, []
        monkeypatch.setattr(room, "room", lambda device: available / room.USABLE)
        monkeypatch.setattr(room, "taken", self.taken)

    def attempt(self, count, share):
        self.runs.append(count * share)
        if self.base + self.each * count * share > self.limit:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    def taken(self, device, work):
        work()
        return self.base + self.each * self.runs[-1]


def test_the_largest_pass_is_what_fits(monkeypatch):
    model = Model(monkeypatch, available=1000, base=100, each=100)
    assert largest_pass(model.attempt, 64, CPU) == 9
    assert model.runs == [0.5, 0.5, 1, 9]
    assert largest_pass(model.attempt, 4, CPU) == 4
    assert largest_pass(model.attempt, 64, CPU, reserved=500) == 4  # 500 of 1000 / USABLE


def test_a_pass_that_was_thought_to_fit_is_halved(monkeypatch):
    model = Model(monkeypatch, available=1000, base=100, each=100, limit=700)
    assert largest_pass(model.attempt, 64, CPU) == 4
    assert model.runs[-2:] == [9, 4]


def test_where_one_completion_does_not_fit_it_is_said(monkeypatch):
    model = Model(monkeypatch, available=1000, base=100, each=1000)
    with pytest.raises(MemoryError, match=r"takes 0\.00 GB"):
        largest_pass(model.attempt, 64, CPU)
    model = Model(monkeypatch, available=1000, base=100, each=1000, limit=700)
    with pytest.raises(MemoryError, match="takes more than there is"):
        largest_pass(model.attempt, 64, CPU)


def test_a_system_that_does_not_tell_is_asked_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(room, "RESET", tmp_path / "clear_refs")
    with pytest.raises(ValueError, match="set a number instead"):
        largest_pass(lambda count, share: None, 4, CPU)


def test_other_errors_of_a_pass_are_no_lack_of_memory(monkeypatch):
    monkeypatch.setattr(room, "room", lambda device: 1e9)

    def attempt(count, share):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        largest_pass(attempt, 4, CPU)


# In training --------------------------------------------------------------------------------------


class Limited(loops.Recorded, loops.ScriptedTrainer):
    """Memory runs out in every pass of more than `limit` completions, after part of it was run."""

    limit = 3

    def _backpropagate(self, model, piece, *, last):
        loss = super()._backpropagate(model, piece, last=last)
        if len(piece.get("own_rows", piece["rewards"])) > self.limit:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return loss


class Roomy(Limited):
    limit = 99


SIZES = {"n_step": 16, "micro_batch_size": 16, "max_steps": 8, "skip_zero_groups": False}


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("objective", ["rapid", "grpo", "trl"])
def test_where_memory_runs_out_passes_are_halved_and_the_gradient_stays(
    objective, pack, toy_model, tmp_path, caplog
):
    roomy, limited = (
        loops.run(toy_model, tmp_path, objective, trainer=kind, pack=pack, **SIZES)
        for kind in (Roomy, Limited)
    )
    assert (roomy.halvings, limited.halvings) == (0, 3 if not pack else limited.halvings)
    assert limited.halvings >= 2
    said = [one for one in caplog.messages if "memory ran out" in one]
    assert len(said) == 1
    assert "in a pass of 16." in said[0]
    loops.assert_learned_alike(
        loops.weights(limited), loops.weights(roomy), loops.untrained(toy_model)
    )
    shares = loops.logged(limited, "rapid/run")
    assert shares == pytest.approx(loops.logged(roomy, "rapid/run"))  # no pass counts twice


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

    def choose(attempt, most, device, reserved):
        attempt(2, 1.0)
        assert (most, reserved) == (16, 0)  # plain SGD keeps nothing
        return 5

    def count(module, args, kwargs):
        tried.append(kwargs["input_ids"].shape)

    monkeypatch.setattr("rapid.training.trl.passes.largest_pass", choose)
    plain = loops.run(toy_model, tmp_path, "rapid", trainer=Roomy, pack=pack, **SIZES)
    auto = loops.build(
        toy_model, tmp_path, "rapid", trainer=Roomy, pack=pack,
        **SIZES | {"micro_batch_size": "auto"},
    )  # fmt: skip
    auto.model.model.register_forward_pre_hook(count, with_kwargs=True)
    auto.train()
    longest = len("long long long prompt 31")
    assert tried[:2] == [(1, longest), (2, 6 - 1)]  # the prompt, which both share, and both
    assert auto.pass_size == PassSize(5, 5 * (longest + 6) if pack else None)
    loops.assert_learned_alike(
        loops.weights(auto), loops.weights(plain), loops.untrained(toy_model)
    )


def test_an_adams_state_is_left_room_for(toy_model, tmp_path, monkeypatch):
    reserves = []
    monkeypatch.setattr(
        "rapid.training.trl.passes.largest_pass",
        lambda attempt, most, device, reserved: reserves.append(reserved) or 4,
    )
    trainer = loops.run(
        toy_model, tmp_path, "rapid", optim="adamw_torch", token_budget="auto", max_steps=1
    )
    parameters = sum(one.numel() for one in trainer.model.parameters())
    assert reserves == [2 * 8 * parameters]  # float64


def test_what_was_found_is_kept_where_a_run_goes_on(toy_model, tmp_path, monkeypatch):
    monkeypatch.setattr("rapid.training.trl.passes.largest_pass", lambda *_: 4)
    trainer = loops.run(toy_model, tmp_path, "rapid", token_budget="auto", max_steps=1)
    trainer.halvings = 2
    other = loops.build(toy_model, tmp_path, "rapid", token_budget="auto")
    other.go_on_with(trainer.ahead())
    assert (other.pass_size, other.halvings) == (trainer.pass_size, 2)


def test_a_limit_of_memory_is_kept_to_and_survived_where_it_is_lowered(toy_model, tmp_path):
    """Of a process whose address space is limited; the weights are those of fixed passes."""
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
