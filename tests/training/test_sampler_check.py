"""The sampler check stops training if completions are not the policy's, but not for rounding."""

from types import SimpleNamespace

import peft
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, GPT2Config, TrainerCallback

from rapid import RapidTrainer
from rapid.training import generation, sampler_check
from rapid.training.sampler_check import (
    EXACT_BOUND,
    ROUNDED_BOUND,
    SamplerCheck,
    compare_logps,
    compute_mismatch_bound,
    select_evenly,
)
from tests.training.conformance.adapters import build_adapter_config
from tests.training.conformance.families import build_untrained
from tests.training.loops import (
    ScriptedTrainer,
    build_rapid_trainer,
    get_weights,
    logged_values,
    prefill_second_half,
    train_rapid,
)

SIZES = {"n_step": 6, "H": 1, "num_generations": 3}
NOT_THE_POLICY = r"step 1: completions are not sampled from the policy.* tokens differ by .* nats"


@pytest.fixture
def wrong_sampler(monkeypatch):
    """A decoder that ignores the first half of each prompt."""
    monkeypatch.setattr(generation, "prefill_prompts", prefill_second_half)


@pytest.mark.parametrize("settings", [{}, {"H": 2}, {"temperature": 0.7}, {"top_p": 0.9}], ids=str)
def test_sampler_that_ignores_part_of_prompt_is_stopped(train, wrong_sampler, settings):
    torch.manual_seed(0)
    model = build_untrained("Llama")
    with torch.no_grad():
        model.lm_head.weight.mul_(30)
    with pytest.raises(RuntimeError, match=NOT_THE_POLICY) as error:
        train(RapidTrainer, model, **SIZES | settings)
    for text in ("between generate and", f"transformers {transformers.__version__}"):
        assert text in str(error.value)


@pytest.mark.parametrize(("temperature", "is_named"), [(0.7, True), (1.0, False)])
def test_mismatch_of_server_names_the_option_of_its_logprobs(
    toy_model, tmp_path, temperature, is_named
):
    """Only if the temperature matters; scripted log-probs are not the policy's."""
    trainer = build_rapid_trainer(
        toy_model,
        tmp_path,
        "pg",
        trainer_class=ScriptedTrainer,
        temperature=temperature,
        max_sampler_mismatch=0.0,
    )
    trainer.use_vllm, trainer.vllm_mode = True, "server"
    trainer.vllm_generation = SimpleNamespace(mode="server")
    with pytest.raises(RuntimeError, match=NOT_THE_POLICY) as error:
        trainer.train()
    assert ("--logprobs-mode processed_logprobs" in str(error.value)) is is_named


def test_model_that_generates_without_virtual_tokens_is_stopped(train, toy_model, monkeypatch):
    """PEFT 0.21 does so with transformers 5.24, whose `generate` keeps a cache."""
    monkeypatch.setattr(
        peft.PeftModelForCausalLM,
        "prepare_inputs_for_generation",
        lambda self, *args, **kwargs: self.base_model_prepare_inputs_for_generation(
            *args, **kwargs
        ),
    )
    model = build_untrained("Llama")
    with torch.no_grad():
        model.lm_head.weight.mul_(30)
    adapter = {"peft_config": build_adapter_config("prompt", toy_model)}
    with pytest.raises(RuntimeError, match=NOT_THE_POLICY):
        train(RapidTrainer, model, arguments=adapter, **SIZES)


def test_mismatch_below_configured_bound_is_allowed(train, wrong_sampler):
    train(RapidTrainer, build_untrained("Llama"), max_sampler_mismatch=1e9, **SIZES)


def test_resumed_run_is_checked_again(toy_model, tmp_path, monkeypatch):
    settings = {"dtype": torch.float32, "save_strategy": "steps", "save_steps": 1, "max_steps": 2}
    train_rapid(toy_model, tmp_path, "pg", **settings)
    monkeypatch.setattr(sampler_check, "compute_mismatch_bound", lambda trainer: -1.0)
    with pytest.raises(RuntimeError, match="step 2: completions are not sampled"):
        trainer = build_rapid_trainer(toy_model, tmp_path, "pg", **settings)
        trainer.train(str(tmp_path / "checkpoint-1"))


@pytest.mark.parametrize("objective", ["rapid", "pg", "trl"])
def test_check_does_not_change_the_run(toy_model, tmp_path, monkeypatch, objective):
    settings = {"dtype": torch.float32, "max_steps": 2}
    checked = train_rapid(toy_model, tmp_path, objective, **settings)
    assert not checked._sampler_check.is_due
    monkeypatch.setattr(sampler_check.SamplerCheck, "run", lambda *_: None)
    monkeypatch.setattr(sampler_check.SamplerCheck, "get_recording_list", lambda *_: None)
    unchecked = train_rapid(toy_model, tmp_path, objective, **settings)
    assert torch.equal(get_weights(checked), get_weights(unchecked))
    assert logged_values(checked, "loss") == logged_values(unchecked, "loss")


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.2},
        {"temperature": 3.0},
        {"top_k": 3, "repetition_penalty": 1.5},
        {"generation_kwargs": {"temperature": 0.3}},
        {"generation_kwargs": {"do_sample": False}, "temperature": 0.5},
        {"generation_kwargs": {"num_beams": 2}},
        {"generation_kwargs": {"min_new_tokens": 4}, "cache_implementation": "static"},
        {"bf16": True},
    ],
    ids=str,
)
def test_sampling_settings_are_no_mismatch(train, settings):
    train(RapidTrainer, build_untrained("Llama"), **SIZES | settings)


def test_enabled_dropout_is_no_mismatch(train, toy_model):
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "resid_pdrop": 0.9}
    vocabulary = AutoModelForCausalLM.from_pretrained(toy_model).config.vocab_size
    config = GPT2Config(vocab_size=vocabulary, pad_token_id=0, **sizes)
    model = AutoModelForCausalLM.from_config(config)
    train(RapidTrainer, model, objective="trl", disable_dropout=False, **SIZES)


def test_rows_are_selected_evenly():
    assert select_evenly(3, 8).tolist() == [0, 1, 2]
    assert select_evenly(8, 4).tolist() == [0, 2, 4, 6]
    assert select_evenly(7, 3).tolist() == [0, 2, 4]


def test_padding_and_nan_are_not_compared():
    sampled = torch.tensor([[-1.0, -2.0, torch.nan], [-1.0, -9.0, -9.0]])
    scored = torch.tensor([[-1.5, -2.0, -7.0], [-1.25, -1.0, -1.0]])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    assert compare_logps(sampled, scored, mask).tolist() == [0.75, 0.5, 3.0]
    assert compare_logps(sampled, scored, mask * 0).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("dtype", "settings", "bound"),
    [
        (torch.float32, {}, EXACT_BOUND),
        (torch.float32, {"temperature": 2.0}, EXACT_BOUND),
        (torch.float32, {"temperature": 0.25}, 4 * EXACT_BOUND),
        (torch.float32, {"bf16": True}, ROUNDED_BOUND),
        (torch.bfloat16, {}, ROUNDED_BOUND),
        (torch.float32, {"quantised": True}, ROUNDED_BOUND),
        (torch.bfloat16, {"max_sampler_mismatch": 7.0}, 7.0),
    ],
)
def test_bound_depends_on_precision(dtype, settings, bound):
    args = {"bf16": False, "fp16": False, "max_sampler_mismatch": None} | settings
    trainer = SimpleNamespace(
        model=SimpleNamespace(dtype=dtype, is_quantized=settings.get("quantised", False)),
        args=SimpleNamespace(**args),
        temperature=settings.get("temperature", 1.0),
        use_vllm=False,
    )
    assert compute_mismatch_bound(trainer) == bound


@pytest.mark.parametrize("backend", [torch.backends.cuda, torch.backends.mkldnn], ids=repr)
def test_tf32_is_not_float32(toy_model, tmp_path, backend):
    trainer = build_rapid_trainer(toy_model, tmp_path, "rapid", dtype=torch.float32)
    trainer.args.trust_sampler, trainer._sampler_check.is_exact = None, False
    assert trainer.uses_sampler_logps() and compute_mismatch_bound(trainer) == EXACT_BOUND
    precision = backend.matmul.fp32_precision
    try:
        backend.matmul.fp32_precision = "tf32"
        assert not trainer.uses_sampler_logps()
        assert compute_mismatch_bound(trainer) == ROUNDED_BOUND
    finally:
        backend.matmul.fp32_precision = precision


@pytest.mark.parametrize("bound", [0.0, 1e9])
def test_later_rounds_sample_without_logps_if_they_are_not_exact(
    toy_model, tmp_path, monkeypatch, bound
):
    """The first round of dynamic sampling, which is checked, recorded them."""
    monkeypatch.setattr(sampler_check, "WEIGHT_ERROR_BOUND", bound)
    settings = {"H": 2, "bf16": True, "dynamic_sampling_rounds": 3, "max_steps": 2}
    trainer = train_rapid(toy_model, tmp_path, "rapid", dtype=torch.float32, **settings)
    assert trainer._sampler_check.is_exact is bool(bound)
    assert trainer.completions_sampled > 32  # several rounds
    assert ("sampler_logp" in trainer.last_pass[1]) is bool(bound)


# Later inference batches --------------------------------------------------------------------------


class BoundChange(TrainerCallback):
    """Lowers the bound of errors to 0 after the first inference batch of two steps.

    This stands for completions that become longer, so that their errors grow.
    """

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch

    def on_step_end(self, args, state, control, **_):
        if state.global_step == 2:
            self.monkeypatch.setattr(sampler_check, "WEIGHT_ERROR_BOUND", 0.0)


@pytest.mark.parametrize(
    ("settings", "uses_sampler"),
    [
        ({}, [True, True, False]),
        ({"objective": "trl"}, [True, True, False]),
        ({"trust_sampler": True}, [True] * 3),
        ({"trust_sampler": False}, [False] * 3),
        ({"bf16": False}, [True] * 3),
    ],
    ids=str,
)
def test_sampler_whose_errors_grow_is_not_used_in_later_batches(
    toy_model, tmp_path, monkeypatch, caplog, settings, uses_sampler
):
    """The second inference batch of two steps is measured, and the third is the first without."""
    monkeypatch.setattr(sampler_check, "WEIGHT_ERROR_BOUND", 1e9)
    settings = {"objective": "rapid", "H": 2, "bf16": True, "max_steps": 6, **settings}
    trainer = build_rapid_trainer(toy_model, tmp_path, dtype=torch.float32, **settings)
    trainer.add_callback(BoundChange(monkeypatch))
    sampled, prepare = [], trainer._prepare_steps
    trainer._prepare_steps = lambda parts: (
        sampled.append("sampler_logp" in parts[0]) or prepare(parts)
    )
    trainer.train()
    assert sampled == uses_sampler
    warnings = [r.message for r in caplog.records if "forward pass computes log mu" in r.message]
    assert len(warnings) == (uses_sampler == [True, True, False])
    assert all(message.startswith("step 3: log-probabilities of") for message in warnings)


def test_resumed_run_does_not_use_sampler_whose_errors_grew(toy_model, tmp_path, monkeypatch):
    monkeypatch.setattr(sampler_check, "WEIGHT_ERROR_BOUND", 1e9)
    settings = {"H": 2, "bf16": True, "save_strategy": "steps", "save_steps": 4}
    settings |= {"dtype": torch.float32}
    trainer = build_rapid_trainer(toy_model, tmp_path, "rapid", max_steps=4, **settings)
    trainer.add_callback(BoundChange(monkeypatch))
    trainer.train()
    monkeypatch.setattr(sampler_check, "WEIGHT_ERROR_BOUND", 1e9)
    resumed = build_rapid_trainer(toy_model, tmp_path, "rapid", max_steps=6, **settings)
    resumed.train(str(tmp_path / "checkpoint-4"))
    assert not resumed.uses_sampler_logps()


BATCH = {
    "completion_ids": torch.zeros(2, 3),
    "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    "sampler_logp": torch.tensor([[-1.0, -1.0, -1.0], [-2.0, torch.nan, -9.0]]),
    "sequence_share": torch.tensor(0.5),
}
LOGP = torch.tensor([[-1.05, -1.05, -1.05], [-2.2, -2.0, -1.0]])  # errors of 0.15 and 0.2


def judge_exactness(micro_batches, other_process=(0.0, 0.0)) -> bool:
    """Return whether the sampler is exact, given the sums of another process."""
    check = SamplerCheck(lambda sums: (sums + torch.tensor(other_process)) / 2)
    check.is_exact = True
    for micro_batch in micro_batches:
        check.add_errors(micro_batch, LOGP)
    args = SimpleNamespace(trust_sampler=True)
    check.judge_errors(SimpleNamespace(args=args, state=SimpleNamespace(global_step=0)))
    return bool(check.is_exact)


@pytest.mark.parametrize(("bound", "is_exact"), [(0.176, False), (0.177, True)])
def test_error_is_root_mean_square_of_sums_over_completions(monkeypatch, bound, is_exact):
    monkeypatch.setattr(sampler_check, "WEIGHT_ERROR_BOUND", bound)  # sqrt((0.15**2 + 0.2**2) / 2)
    assert judge_exactness([BATCH]) is is_exact


def test_processes_decide_by_the_completions_of_all():
    assert not judge_exactness([BATCH])
    assert judge_exactness([BATCH], other_process=(0.0, 98.0))  # of 98 exact completions
    assert not judge_exactness([BATCH], other_process=(1.0, 2.0))


@pytest.mark.parametrize(
    "column",
    [
        {"sequence_share": torch.tensor(0.0)},  # a dummy
        {"local_weight": torch.tensor(0), "local_rows": torch.arange(2)},  # another process's rows
        {"behavior_logp": LOGP},  # of a later step, in which the policy has changed
    ],
    ids=lambda column: next(iter(column)),
)
def test_rows_that_are_not_from_the_present_policy_are_not_counted(column):
    assert judge_exactness([BATCH | column])
