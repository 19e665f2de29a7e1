"""Sampling from a toy model, with transformers and with vLLM."""

import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from transformers import AutoTokenizer, Qwen2ForCausalLM

from rapid import sampling
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.prompts import tokenize_prompt
from rapid.sampling import Sample
from tests.checkout import ROOT
from tests.conftest import save_qwen2
from tests.subprocesses import assert_gone, kill_at_end, python, start_command

SETTINGS = {"max_tokens": 8, "temperature": 1.0, "top_p": 1.0}


@pytest.fixture
def sample(toy_model, monkeypatch):
    """Return a function that samples from the toy model, four completions at a time."""
    monkeypatch.setattr(sampling, "BATCH_SIZE", 4)
    return partial(sampling.sample, "transformers", toy_model)


def test_the_same_seed_gives_the_same_completions(sample):
    samples, samples_of_same_seed, samples_of_other_seed = (
        sample(["a"] * 4, **SETTINGS, seed=seed) for seed in (0, 0, 1)
    )
    assert samples == samples_of_same_seed != samples_of_other_seed


def test_generate_gets_the_settings_and_tokens_are_counted_up_to_the_end(
    sample, toy_model, monkeypatch
):
    tokenizer = AutoTokenizer.from_pretrained(toy_model)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    (letter,) = tokenizer("x")["input_ids"]
    rows = [[letter, letter, end, pad], [letter, letter, end, end], [letter] * 4]
    rows = torch.tensor([*rows, [letter, end, pad, pad]])

    def generate(self, input_ids, generation_config, **_):
        configs.append(generation_config)
        return torch.cat([input_ids, rows], dim=1)

    configs = []
    monkeypatch.setattr(Qwen2ForCausalLM, "generate", generate)
    samples = sample(["a"] * 4, max_tokens=4, temperature=0.6, top_p=0.9, seed=0)
    (config,) = configs
    assert (config.do_sample, config.temperature, config.top_p) == (True, 0.6, 0.9)
    assert (config.top_k, config.max_new_tokens) == (0, 4)
    assert (config.pad_token_id, config.eos_token_id) == (pad, [end])
    assert [completion.tokens for completion in samples] == [3, 3, 4, 2]
    assert [completion.text for completion in samples] == ["xx", "xx", "xxxx", "x"]


def test_penalties_in_the_generation_config_of_a_model_are_ignored(sample, toy_model, tmp_path):
    """transformers takes settings that are not set from the model's generation_config.json."""
    shutil.copytree(toy_model, tmp_path, dirs_exist_ok=True)
    config_file = tmp_path / "generation_config.json"
    config = json.loads(config_file.read_text()) if config_file.exists() else {}
    config_file.write_text(json.dumps(config | {"repetition_penalty": 1e6, "min_p": 0.9}))
    arguments = {"prompts": ["a"] * 4, **SETTINGS, "seed": 0}
    assert sampling.sample("transformers", tmp_path, **arguments) == sample(**arguments)


def test_batches_have_prompts_of_one_length_and_completions_keep_the_order(sample, monkeypatch):
    def echo(self, input_ids, attention_mask, **_):
        padding.append(int((attention_mask == 0).sum()))
        return torch.cat([input_ids, input_ids[:, -1:]], dim=1)

    padding = []
    monkeypatch.setattr(Qwen2ForCausalLM, "generate", echo)
    samples = sample(["a", "bb", "c", "dd", "ee", "f", "gg", "h"], **SETTINGS, seed=0)
    assert "".join(completion.text for completion in samples) == "abcdefgh"
    assert padding == [0, 0]  # two batches of four, without padding


@pytest.mark.parametrize("limit", [1, 2**26])
def test_entropy_is_the_mean_over_all_sampled_tokens(sample, toy_model, monkeypatch, limit):
    """It equals the mean of a loop over completions, whether they are in one batch or in several."""
    monkeypatch.setattr(sampling, "MAX_LOGITS", limit)
    prompts = ["a", "bb", "ccc", "ccc"]
    samples = sample(prompts, **SETTINGS, seed=0)
    assert [len(completion.ids) for completion in samples] == [c.tokens for c in samples]
    model = Qwen2ForCausalLM.from_pretrained(toy_model, dtype=torch.float64).eval()
    tokenizer = AutoTokenizer.from_pretrained(toy_model)
    entropies = []
    for prompt, completion in zip(prompts, samples, strict=True):
        prompt_ids = tokenize_prompt(tokenizer, prompt, chat=False)
        for position in range(len(completion.ids)):
            ids = torch.tensor([[*prompt_ids, *completion.ids[:position]]])
            with torch.no_grad():
                p = (model(ids).logits[0, -1] / 0.7).softmax(0)
            entropies.append(-(p * p.log()).sum().item())
    entropy = sampling.measure_entropy(toy_model, prompts, samples, temperature=0.7)
    assert entropy == pytest.approx(sum(entropies) / len(entropies), rel=1e-5)


@pytest.fixture
def engine_calls(monkeypatch) -> list[tuple]:
    """The calls that a fake vLLM engine receives, by name, with their arguments."""
    calls: list[tuple] = []

    class Engine:
        def __init__(self, **settings):
            calls.append(("start", settings))
            core = SimpleNamespace(shutdown=lambda: calls.append(("end",)))
            self.llm_engine = SimpleNamespace(engine_core=core)

        def collective_rpc(self, function):
            calls.append(("run in workers", function))

        def generate(self, prompts, settings):
            calls.append(("generate", prompts, settings))
            completion = SimpleNamespace(text="x", token_ids=[1, 2])
            return [
                SimpleNamespace(outputs=[completion] * prompt_settings["n"])
                for prompt_settings in settings
            ]

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=Engine, SamplingParams=dict))
    monkeypatch.setattr(os, "environ", os.environ.copy())
    return calls


def test_vllm_gets_the_settings_and_each_distinct_prompt_once(toy_model, engine_calls):
    sampling_settings = {"max_tokens": 4, "temperature": 0.6, "top_p": 0.9}
    samples = sampling.sample("vllm", toy_model, ["a", "a", "b"], **sampling_settings, seed=3)
    (_, engine), (_, prompts, settings), end = engine_calls
    assert (engine["seed"], engine["tensor_parallel_size"], engine["dtype"]) == (3, 1, "float32")
    assert settings == [sampling_settings | {"top_k": 0, "n": n} for n in (2, 1)]
    assert (len(prompts), end) == (2, ("end",))
    assert [completion.tokens for completion in samples] == [2, 2, 2]


def test_vllm_s_workers_end_with_the_job(toy_model, engine_calls, monkeypatch):
    """The engine is in the job's process, and each GPU's worker is a child of it."""
    ended = []
    monkeypatch.setattr(sampling, "end_with_parent", lambda: ended.append("worker"))
    sampling.sample("vllm", toy_model, ["a"], **SETTINGS, seed=0, tensor_parallel=2)
    (_, engine), (call, function), *_ = engine_calls
    function("worker")
    assert (engine["tensor_parallel_size"], call, ended) == (2, "run in workers", ["worker"])
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"


@pytest.mark.parametrize(
    ("prompts", "max_tokens", "max_model_len"),
    [(["a", "bcd"], 4, 7), (["a"], 32767, 32768), (["a"], 32768, None)],
)
def test_vllm_s_engine_is_as_long_as_the_samples_if_the_model_allows(
    toy_model, engine_calls, prompts, max_tokens, max_model_len
):
    settings = SETTINGS | {"max_tokens": max_tokens}
    sampling.sample("vllm", toy_model, prompts, **settings, seed=0)
    assert engine_calls[0][1]["max_model_len"] == max_model_len


CHAT_TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def test_all_graders_grade_at_the_same_time_and_verdicts_keep_the_order(monkeypatch):
    problems = [MathProblem(unique_id=name, problem=name, answer="1") for name in "abcd"]
    samples = [Sample(text=text, tokens=1) for text in "1234"]
    monkeypatch.setattr(sampling, "sample", lambda *_, **__: samples)
    both_grade = threading.Barrier(2, timeout=60)

    class Graders:
        size = 2

        def grade(self, problem, completion):
            both_grade.wait()
            return problem.id, completion

    graded = sampling.sample_and_grade(
        Path("model"), "math", problems, Graders(), sampler="transformers", chat=False
    )
    assert graded == [
        (problem, completion, (problem.id, completion.text))
        for problem, completion in zip(problems, samples, strict=True)
    ]


def test_a_chat_prompt_is_rendered_with_the_template_of_the_model(toy_model):
    tokenizer = AutoTokenizer.from_pretrained(toy_model)
    tokenizer.chat_template = CHAT_TEMPLATE
    messages = [{"role": "user", "content": "hi"}]
    encoded = tokenizer.apply_chat_template(
        [messages], add_generation_prompt=True, return_dict=True
    )
    assert tokenize_prompt(tokenizer, "hi", chat=True) == encoded["input_ids"][0]
    assert tokenizer.decode(tokenize_prompt(tokenizer, "hi", chat=True)) == "<user>hi<assistant>"
    assert tokenize_prompt(tokenizer, "hi", chat=False) == tokenizer("hi")["input_ids"]


COMPARE_VLLM = """
import json, sys
from rapid.sampling import sample
settings = {"max_tokens": 5, "temperature": 1e-6, "top_p": 1.0, "seed": 3}
results = {}
for kind in ("transformers", "vllm"):
    samples = sample(kind, sys.argv[1], ["ab", "ab", "c"], **settings)
    results[kind] = [completion.model_dump() for completion in samples]
print(json.dumps(results))
"""


@pytest.mark.slow
def test_vllm_samples_the_same_tokens_as_transformers(toy_model):
    """At a temperature of almost 0 both sample the likeliest token."""
    ended = python("-c", COMPARE_VLLM, toy_model, VLLM_CPU_KVCACHE_SPACE="1")
    samples = json.loads(ended.stdout.splitlines()[-1])
    assert samples["vllm"] == samples["transformers"]
    assert len(samples["vllm"]) == 3


SAMPLE_AND_WAIT = """
import sys, time
from pathlib import Path
from vllm import LLM
from rapid.sampling import sample

def wait(*_):
    print("sampling", flush=True)
    time.sleep(3600)

LLM.generate = wait
settings = {"max_tokens": 5, "temperature": 1.0, "top_p": 1.0, "seed": 3}
sample("vllm", Path(sys.argv[1]), ["ab"], **settings, tensor_parallel=2)
"""


@pytest.mark.slow
def test_no_process_of_vllm_outlives_a_killed_job(toy_model, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(toy_model)
    shape = {"hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    save_qwen2(tmp_path, tokenizer, vocab_size=len(tokenizer), **shape, **heads)
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    job = start_command(
        [sys.executable, "-c", SAMPLE_AND_WAIT, str(tmp_path)],
        cwd=ROOT, env=os.environ | variables, stderr=subprocess.STDOUT,
    )  # fmt: skip
    with kill_at_end(job), job.stdout:
        assert any("sampling" in line for line in job.stdout)
        descendants = psutil.Process(job.pid).children(recursive=True)
        job.kill()
        try:
            assert_gone(*(process.pid for process in descendants))
        finally:
            for process in descendants:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
