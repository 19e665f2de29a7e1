"""A vLLM engine in the trainer's process samples from the current policy."""

import json
import os
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from rapid.training.trl import vllm
from tests.subprocesses import python

# Settings with which vLLM does not compile models; they compute the same without it.
NOT_COMPILED = {
    "VLLM_CPU_CI_ENV": "1",
    "VLLM_USE_AOT_COMPILE": "0",
    "TORCHDYNAMO_DISABLE": "1",
}
CACHE_SPACE, AOT_COMPILE = "VLLM_CPU_KVCACHE_SPACE", "VLLM_USE_AOT_COMPILE"
FLASHINFER_SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"


# On the CPU, with vLLM ----------------------------------------------------------------------------


@pytest.fixture(
    scope="module",
    params=[NOT_COMPILED, pytest.param({}, marks=pytest.mark.slow)],
    ids=["not compiled", "compiled"],
)
def results(request, toy_model, tmp_path_factory) -> dict:
    """Results of tests/training/vllm_worker.py, which runs in a process of its own."""
    pytest.importorskip("vllm")
    folder = tmp_path_factory.mktemp("vllm")
    variables = {CACHE_SPACE: "1", "VLLM_CACHE_ROOT": str(folder / "cache"), **request.param}
    process = python("-m", "tests.training.vllm_worker", toy_model, folder, **variables)
    compile_result = {"compiled_again": "load failure" in process.stdout + process.stderr}
    return json.loads((folder / "results.json").read_text()) | compile_result


def test_engine_has_policy_precision_and_run_seed(results):
    assert (results["dtype"], results["seed"]) == ("torch.float32", 3)


def test_vllm_samples_from_policy_and_its_logps_are_used(results):
    assert len(results["training"]["mismatch"]) == 2
    assert max(results["training"]["mismatch"]) < 1e-4
    assert results["training"]["sampler_logp_used"]


def test_resumed_run_with_vllm_ends_with_same_weights(results):
    """vLLM draws from the generator of the process, whose state a checkpoint holds."""
    assert results["resumed_exactly"]


def test_weights_are_synced_once_per_inference_batch_sampled_in_parts(results):
    assert results["training"]["syncs"] == 2
    assert 0 < results["training"]["seconds"]["sync"] < results["training"]["seconds"]["sampling"]


@pytest.mark.parametrize("case", ["tied", "untied", "adapted"])
def test_sync_loads_all_weights_in_one_call(results, case):
    assert results[case]["stale"] > 1e-2
    assert results[case]["after"] < 1e-4
    if case != "adapted":  # vLLM gets its weights merged into the model's
        assert results[case]["tensors_per_call"] == [results[case]["tensors"]]


def test_sync_repacks_tied_head(results):
    assert results["sync_without_head"]["stale"] > 1e-2
    assert results["sync_without_head"]["after"] < 1e-4


def test_compiled_model_is_loaded_from_cache(results):
    assert not results["compiled_again"]


def test_group_shares_cached_prompt_tokens(results):
    assert results["cached_tokens"] == [0, 192, 0, 192]  # whole blocks of a prompt's 200 tokens


def test_completions_are_reported_while_others_are_sampled(results):
    ended = results["ended"]
    assert ended["reported"] == ended["returned"]
    assert [len(tokens) for tokens in ended["reported"]] == [2, 5, 9, 12]
    assert ended["running"] == [3, 2, 1, 0]


def test_saved_model_loads_in_transformers_and_vllm(results):
    assert results["saved_model"]["equal"]
    assert results["saved_model"]["mismatch"] < 1e-4


# On GPUs and servers, with engines that only record calls ----------------------------------------


class RecordingEngine:
    """Stand-in for TRL's VLLMGeneration: `events` lists the calls it received and the phases."""

    def __init__(self, mode="colocate", sleeps=False):
        self.mode, self.enable_sleep_mode, self._llm_weights_sleeping = mode, sleeps, sleeps
        self.events: list[str] = []
        self.clock = SimpleNamespace(phase=self._phase)
        runner = SimpleNamespace(model=SimpleNamespace(load_weights=self._load_weights))
        executor = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))
        self.llm = SimpleNamespace(
            llm_engine=SimpleNamespace(model_executor=executor),
            wake_up=lambda tags: self.events.append(f"wake up {tags}"),
            reset_prefix_cache=lambda: self.events.append("reset cache"),
        )

    @contextmanager
    def _phase(self, name):
        self.events.append(f"begin {name}")
        yield
        self.events.append(f"end {name}")

    def _iter_named_params(self):
        yield from {"a": torch.zeros(1), "b": torch.ones(1)}.items()

    def _load_weights(self, weights):
        self.events.append(f"load {[name for name, _ in weights]}")

    def sync_weights(self):
        self.events.append("TRL's sync")


def record_sync(monkeypatch, **settings) -> list[str]:
    """Return the events of a sync of an engine that is not on a CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    engine = RecordingEngine(**settings)
    vllm.patch_weight_sync(engine, engine.clock)
    engine.sync_weights()
    return engine.events


@pytest.mark.parametrize(
    ("mode", "events"),
    [("colocate", ["load ['a', 'b']", "reset cache"]), ("server", ["TRL's sync"])],
)
def test_gpu_sync_loads_weights_in_one_call_and_server_sync_is_trls(monkeypatch, mode, events):
    assert record_sync(monkeypatch, mode=mode) == ["begin sync", *events, "end sync"]


def test_sleeping_engine_is_woken_before_sync(monkeypatch):
    assert record_sync(monkeypatch, sleeps=True)[1:3] == ["wake up ['weights']", "load ['a', 'b']"]


def test_dtype_of_vllm_server_is_unknown():
    assert vllm.get_engine_dtype(RecordingEngine(mode="server")) is None


def connect_server(logprobs_mode, mode="server", is_main=True):
    """Return a stand-in for TRL's VLLMGeneration that is connected to a server."""
    info = {"model_config": {"logprobs_mode": logprobs_mode} if logprobs_mode else {}}
    return SimpleNamespace(
        mode=mode,
        accelerator=SimpleNamespace(is_main_process=is_main),
        vllm_client=SimpleNamespace(get_server_info=lambda: info) if is_main else None,
    )


@pytest.mark.parametrize(
    ("logprobs_mode", "temperature"),
    [("raw_logprobs", 0.7), ("raw_logits", 1.0), ("processed_logits", 1.0)],
)
def test_server_whose_logprobs_are_not_those_of_sampling_is_refused(logprobs_mode, temperature):
    with pytest.raises(ValueError, match="start it with --logprobs-mode processed_logprobs"):
        vllm.refuse_unprocessed_logprobs(connect_server(logprobs_mode), temperature)


@pytest.mark.parametrize(
    ("generation", "temperature"),
    [
        (connect_server("processed_logprobs"), 0.7),
        (connect_server("raw_logprobs"), 1.0),
        (connect_server(None), 0.7),  # a server that does not tell its mode
        (connect_server("raw_logprobs", is_main=False), 0.7),
        (SimpleNamespace(mode="colocate"), 0.7),
    ],
)
def test_server_whose_logprobs_are_those_of_sampling_is_accepted(generation, temperature):
    vllm.refuse_unprocessed_logprobs(generation, temperature)


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
def test_engine_uses_precision_of_policy_forward(mixed, stored, computed):
    engine = SimpleNamespace(
        accelerator=SimpleNamespace(mixed_precision=mixed), model=SimpleNamespace(dtype=stored)
    )
    assert vllm._get_policy_dtype(engine) == computed


@pytest.mark.parametrize(
    ("gpu", "user_variables", "expected", "engine_settings"),
    [
        (False, {}, {CACHE_SPACE: "2", AOT_COMPILE: "0"}, {"block_size": 32}),
        (
            False,
            {CACHE_SPACE: "7", AOT_COMPILE: "1"},
            {CACHE_SPACE: "7", AOT_COMPILE: "1"},
            {"block_size": 32},
        ),
        (True, {}, {FLASHINFER_SAMPLER: "0"}, {}),
        (True, {FLASHINFER_SAMPLER: "1"}, {FLASHINFER_SAMPLER: "1"}, {}),
    ],
)
def test_engine_defaults_do_not_override_user_environment(
    monkeypatch, gpu, user_variables, expected, engine_settings
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(os, "environ", environment := dict(user_variables))
    assert vllm.prepare_engine() == engine_settings
    assert environment == expected
