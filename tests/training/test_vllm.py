"""An engine of vLLM in the trainer's process computes what the policy computes."""

import json
import os
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from rapid.training.trl import vllm
from tests.subprocesses import python

# vLLM compiles models before it runs them. What they compute is the same without.
NOT_COMPILED = {
    "VLLM_CPU_CI_ENV": "1",
    "VLLM_USE_AOT_COMPILE": "0",
    "TORCHDYNAMO_DISABLE": "1",
}
SPACE, AHEAD = "VLLM_CPU_KVCACHE_SPACE", "VLLM_USE_AOT_COMPILE"


# On the CPU, with vLLM ----------------------------------------------------------------------------


@pytest.fixture(
    scope="module",
    params=[NOT_COMPILED, pytest.param({}, marks=pytest.mark.slow)],
    ids=["not compiled", "compiled"],
)
def found(request, toy_model, tmp_path_factory) -> dict:
    """What tests/training/vllm_worker.py finds in a process of its own."""
    pytest.importorskip("vllm")
    folder = tmp_path_factory.mktemp("vllm")
    variables = {SPACE: "1", "VLLM_CACHE_ROOT": str(folder / "cache"), **request.param}
    done = python("-m", "tests.training.vllm_worker", toy_model, folder, **variables)
    again = {"compiled again": "load failure" in done.stdout + done.stderr}
    return json.loads((folder / "found.json").read_text()) | again


def test_the_engine_has_the_policys_precision_and_the_seed_of_the_run(found):
    assert (found["dtype"], found["seed"]) == ("torch.float32", 3)


def test_a_trainer_with_vllm_samples_from_its_own_policy_and_knows_mu(found):
    assert len(found["trained"]["mismatch"]) == 2
    assert max(found["trained"]["mismatch"]) < 1e-4
    assert found["trained"]["mu is the sampler's"]


def test_a_resumed_run_is_the_run_that_was_not_stopped(found):
    """Though vLLM draws from the generator of the process."""
    assert found["resumed"]


def test_weights_are_synced_once_for_an_inference_batch_sampled_in_parts(found):
    assert found["trained"]["syncs"] == 2
    assert 0 < found["trained"]["seconds"]["sync"] < found["trained"]["seconds"]["sampling"]


@pytest.mark.parametrize("case", ["tied", "untied", "adapted"])
def test_a_sync_gives_vllm_all_weights_in_one_call(found, case):
    assert found[case]["stale"] > 1e-2
    assert found[case]["after"] < 1e-4
    if case != "adapted":  # whose weights vLLM gets merged
        assert found[case]["tensors of each call"] == [found[case]["tensors"]]


def test_a_sync_without_packing_the_head_again_would_leave_a_tied_head_stale(found):
    assert found["without the head"]["stale"] > 1e-2
    assert found["without the head"]["after"] < 1e-4


def test_what_was_compiled_is_loaded(found):
    assert not found["compiled again"]


def test_prompts_of_a_group_are_computed_once(found):
    assert found["cached"] == [0, 192, 0, 192]  # whole blocks of 200


def test_a_trained_model_is_loaded_again_by_transformers_and_by_vllm(found):
    assert found["saved"]["equal"]
    assert found["saved"]["mismatch"] < 1e-4


# Elsewhere, with engines that only take notes -----------------------------------------------------


class NotedEngine:
    """Stands for TRL's VLLMGeneration: `noted` says what was done to it, and in which phase."""

    def __init__(self, mode="colocate", sleeps=False):
        self.mode, self.enable_sleep_mode, self._llm_weights_sleeping = mode, sleeps, sleeps
        self.noted: list[str] = []
        self.clock = SimpleNamespace(phase=self._phase)
        runner = SimpleNamespace(model=SimpleNamespace(load_weights=self._load_weights))
        executor = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))
        self.llm = SimpleNamespace(
            llm_engine=SimpleNamespace(model_executor=executor),
            wake_up=lambda tags: self.noted.append(f"wake up {tags}"),
            reset_prefix_cache=lambda: self.noted.append("reset cache"),
        )

    @contextmanager
    def _phase(self, name):
        self.noted.append(f"begin {name}")
        yield
        self.noted.append(f"end {name}")

    def _iter_named_params(self):
        yield from {"a": torch.zeros(1), "b": torch.ones(1)}.items()

    def _load_weights(self, weights):
        self.noted.append(f"load {[name for name, _ in weights]}")

    def sync_weights(self):
        self.noted.append("TRL's sync")


def noted(monkeypatch, **settings) -> list[str]:
    """What a sync does to an engine that is not on a CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    engine = NotedEngine(**settings)
    vllm.patch_weight_sync(engine, engine.clock)
    engine.sync_weights()
    return engine.noted


@pytest.mark.parametrize(
    ("mode", "does"),
    [("colocate", ["load ['a', 'b']", "reset cache"]), ("server", ["TRL's sync"])],
)
def test_elsewhere_weights_are_loaded_in_one_call_or_by_trl(monkeypatch, mode, does):
    assert noted(monkeypatch, mode=mode) == ["begin sync", *does, "end sync"]


def test_an_engine_that_sleeps_is_woken_first(monkeypatch):
    assert noted(monkeypatch, sleeps=True)[1:3] == ["wake up ['weights']", "load ['a', 'b']"]


def test_a_server_does_not_say_what_it_computes_in():
    assert vllm.engine_dtype(NotedEngine(mode="server")) is None


@pytest.mark.parametrize(
    ("mixed", "stored", "computed"),
    [
        ("no", torch.float32, torch.float32),
        ("no", torch.bfloat16, torch.bfloat16),
        ("bf16", torch.float32, torch.bfloat16),
        ("fp16", torch.float32, torch.float16),
        ("no", torch.float64, torch.float32),
    ],
)
def test_the_engine_is_asked_for_the_precision_of_the_policys_forward(mixed, stored, computed):
    engine = SimpleNamespace(
        accelerator=SimpleNamespace(mixed_precision=mixed), model=SimpleNamespace(dtype=stored)
    )
    assert vllm._policy_dtype(engine) == computed


@pytest.mark.parametrize(
    ("gpu", "given", "expected", "told"),
    [
        (False, {}, {SPACE: "2", AHEAD: "0"}, {"block_size": 32}),
        (False, {SPACE: "7", AHEAD: "1"}, {SPACE: "7", AHEAD: "1"}, {"block_size": 32}),
        (True, {}, {}, {}),
    ],
)
def test_on_cpus_what_the_user_did_not_set_is_set(monkeypatch, gpu, given, expected, told):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(os, "environ", environment := dict(given))
    assert vllm.prepare_engine() == told
    assert environment == expected
