"""RapidConfig: contradictory settings are refused with advice."""

import math
import pickle
import re
from dataclasses import dataclass, replace
from inspect import signature

import pytest
import torch
from transformers import HfArgumentParser, TrainingArguments
from trl import GRPOConfig, TrlParser

from rapid.algorithms.rapid import RapidParameters
from rapid.training.config import RapidConfig
from rapid.training.trl import TRL_LOSS_FIELDS

RAPID = {"objective": "rapid"}
# Generation arguments that do not change the distribution of a policy at temperature 0.7.
SAME_DISTRIBUTION = {"top_k": 0, "temperature": 0.7, "do_sample": True, "num_beams": 1}
SAME_DISTRIBUTION |= {"max_new_tokens": 4}
COMMON = {"output_dir": "unused", "use_cpu": True, "bf16": False, "report_to": []}
VALID = COMMON | {"H": 2, "n_step": 8, "num_generations": 4, "micro_batch_size": 4}
LOGGED = {"H": 1, "use_rollout_logps": True}  # log mu is given, and need not be log pi


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"H": 0}, "H=0: Input should be greater than 0"),
        ({"reuse": 0}, "reuse=0: Input should be greater than 0"),
        ({"reuse": 1.5}, "reuse=1.5: set it to a whole number"),
        (
            {"H": 2.5, "n_step": "8"},
            "H=2.5: set it to a whole number\nn_step=.8.: set it to a whole",
        ),
        ({"num_generations": 0}, "num_generations=0: Input should be .* equal to 2"),
        ({"parameters": {"epsilon_low": 0.1}}, "epsilon_low: is not a key; the keys are eta, "),
        ({"eta": 0.0}, "eta=0.0: Input should be greater than 0"),
        ({"clip": "front"}, "clip=.front.: Input should be .advantage., .both. or .nowhere."),
        (
            {"micro_batch_size": 0},
            "^micro_batch_size=0: must be a whole number greater than 0, or auto",
        ),
        (
            {"token_budget": "much"},
            "token_budget='much': must be a whole number greater than 0, or auto",
        ),
        ({"per_device_train_batch_size": 2}, "^per_device_train_batch_size=2, gradient_acc"),
        (
            {"gradient_accumulation_steps": 2},
            "^per_device.*=8 .the default., gradient_accumulation_steps=2: G",
        ),
        ({"steps_per_generation": 4}, "^steps_per_generation=4, num_iterations=1: GRPOTrainer"),
        ({"generation_batch_size": 64}, "^generation_batch_size=64, num_iterations=1: GRPOTrain"),
        ({"n_step": 10}, "n_step=10 is not a multiple of num_generations=4"),
        ({"n_step": 0}, "set it to a multiple of 4"),
        ({"num_iterations": 3}, "^num_iterations=3: GRPOTrainer's sizes contradict n_step=8, H=2"),
        ({"objective": "ppo"}, "set it to one of grpo, naive-grpo, pg, .*, rapid, trl"),
        ({"objective": "sft"}, "set it to one of"),
        ({"objective": "rapid-H4"}, "^objective='rapid-H4': set objective='rapid', H=4$"),
        ({"parameters": [1]}, r"parameters=\[1\]: set it to a dictionary"),
        ({"parameters": "cap=2"}, "parameters='cap=2': set it to a dictionary"),
        (
            {"beta": 0.1, **RAPID},
            "leave beta unset, or set objective to one of grpo, naive-grpo, trl",
        ),
        ({"top_p": 0.9}, "is sampled: top_p=0.9; leave them unset"),
        ({"top_k": 50}, "is sampled: top_k=50; leave"),
        ({"min_p": 0.1}, "is sampled: min_p=0.1; leave"),
        ({"repetition_penalty": 1.1}, "is sampled: repetition_penalty=1.1; leave"),
        *(
            ({"generation_kwargs": {name: value}}, f"what is sampled: {name}={value!r}; leave")
            for name, value in {
                "top_k": 5,
                "temperature": 0.7,
                "typical_p": 0.9,
                "do_sample": False,
                "num_beams": 2,
                "min_new_tokens": 3,
            }.items()
        ),
        (
            {"generation_kwargs": '{"top_k": 5}'},
            "is sampled: top_k=5; leave",
        ),  # as on a command line
        (
            {"top_p": 0.9, "generation_kwargs": {"top_k": 5}},
            "is sampled: top_p=0.9, top_k=5; leave",
        ),
        ({"grading_workers": -1}, "grading_workers=-1: Input should be .* equal to 0"),
        ({"max_completion_length": None, "objective": "dr-grpo"}, "dr-grpo divides by it"),
        ({"token_budget": 0}, "token_budget=0: must be a whole number greater than 0, or auto"),
        ({"loss_type": "grpo", **RAPID}, "leave loss_type unset, or set objective to one of trl"),
        (
            {"scale_rewards": "group", **RAPID},
            "objective='rapid' always uses 'none'; leave it unset",
        ),
        (
            {"scale_rewards": False, "objective": "dapo"},
            "'dapo' always uses 'group'; leave it unset",
        ),
        (
            {"epsilon": 0.3, **RAPID},
            r"leave epsilon unset, or .* grpo, naive-grpo, dapo, dr-grpo, trl",
        ),
        (
            {"epsilon_high": 0.3, "objective": "grpo"},
            "leave epsilon_high unset, or set objective .* dapo",
        ),
        ({"clip": "front", "objective": "grpo"}, "leave clip unset, or .* rapid"),
        ({"eta": 3.0, "objective": "pg"}, "leave eta unset, or set objective to one of rapid$"),
        ({"eta": 3.0, "delta": 1.5}, "objective='trl' has no such parameter; leave eta unset, or"),
        ({"sampling_batch_size": 0}, "sampling_batch_size=0: Input should be greater than 0"),
        (
            {"sampling_batch_size": 6, "use_vllm": True},
            "sampling_batch_size=6 .* set it to a multiple of 4",
        ),
        ({"learning_rate": -1.0}, "learning_rate=-1.0: Input should be .* equal to 0"),
        ({"learning_rate": math.inf}, "learning_rate=inf: Input should be a finite number"),
        ({"temperature": 0.0}, "temperature=0.0: Input should be greater than 0"),
        ({"disable_dropout": False}, "set disable_dropout=True, or H=1"),
        ({"neftune_noise_alpha": 5.0}, "neftune_noise_alpha=5.0: .* or set H=1"),
        ({"H": 1, "reuse": 2, "neftune_noise_alpha": 5.0}, "or set H=1 and reuse=1"),
        (LOGGED | {"disable_dropout": False}, "dropout=True, or H=1 and use_rollout_logps=False"),
        (LOGGED | {"neftune_noise_alpha": 5.0}, "or set H=1 and use_rollout_logps=False"),
        (
            LOGGED | {"mask_truncated_completions": True},
            "baseline of objective='rapid' .* set H=1 and use_rollout_logps=False",
        ),
        (
            LOGGED
            | {"objective": "trl", "use_vllm": True, "vllm_importance_sampling_correction": True},
            "vllm_importance_sampling_correction=True: .* weighted twice",
        ),
        (
            {"vllm_structured_outputs_regex": "a+"},
            "is sampled: vllm_structured_outputs_regex='a.'; leave",
        ),
        (
            {"auto_find_batch_size": True, "top_p": 0.9},
            "(?s)lower micro_batch_size .* or set it to 'auto'.*is sampled: top_p=",
        ),
        (
            {"dynamic_sampling_by": "sum"},
            "dynamic_sampling_by='sum': Input should be 'rewards' or 'accuracy'",
        ),
        ({"num_generations_eval": 1, "objective": "rloo"}, "num_generations_eval=1: the baseline"),
        ({"num_generations_eval": 1, "baseline": "others"}, "num_generations_eval=1: the baseline"),
    ],
)
def test_contradictory_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        RapidConfig(**{**VALID, **change})


def test_masking_truncated_completions_is_refused_off_policy_for_rapid():
    masked = COMMON | {"per_device_train_batch_size": 8, "mask_truncated_completions": True}
    with pytest.raises(ValueError, match=r"baseline of objective='rapid' .* set H=1"):
        RapidConfig(**masked, H=2)
    assert RapidConfig(**masked, H=1).mask_truncated_completions
    assert RapidConfig(**masked, H=2, objective="dapo").H == 2


def test_grpo_config_is_converted():
    sizes = {"per_device_train_batch_size": 8, "steps_per_generation": 4, "num_generations": 4}
    trl_config = GRPOConfig(**COMMON | sizes, learning_rate=0.1, temperature=0.7)
    config = RapidConfig.of(trl_config)
    assert (config.n_step, config.H, config.num_generations) == (8, 4, 4)
    assert (config.learning_rate, config.temperature, config.output_dir) == (0.1, 0.7, "unused")
    assert config.scale_rewards == "none"
    assert RapidConfig.of(config) is config
    trl_loss_config = RapidConfig.of(
        replace(trl_config, loss_type="grpo", delta=1.5, generation_batch_size=None)
    )
    assert (trl_loss_config.objective, trl_loss_config.loss_type) == ("trl", "grpo")
    assert trl_loss_config.delta == 1.5
    default_config = RapidConfig.of(GRPOConfig(**COMMON))
    assert (default_config.n_step, default_config.H) == (8, 1)
    assert RapidConfig.of(None).output_dir == "rapid-output"

    @dataclass
    class Extended(GRPOConfig):
        system_prompt: str = ""

    extended = Extended(**COMMON, system_prompt="Answer briefly")
    extended.note = "first try"
    converted = RapidConfig.of(extended)
    assert (converted.system_prompt, converted.note) == ("Answer briefly", "first try")
    with pytest.raises(TypeError, match="args is a TrainingArguments: pass a RapidConfig"):
        RapidConfig.of(TrainingArguments("unused", use_cpu=True, report_to=[]))


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_type": "grpo"},
        {"beta": 0.1, "epsilon": 0.3},
        {"scale_rewards": True},
        {"loss_type": "dapo", "epsilon": 0.2},  # TRL's defaults, written out
        {"beta": 0.0, "importance_sampling_level": "token"},
        {"vllm_importance_sampling_clip_max": 3.0},
    ],
)
def test_setting_of_trls_loss_selects_that_loss_with_warning(caplog, settings):
    config = RapidConfig(**VALID, **settings)
    assert config.objective == "trl" and config.uses_trl_loss and config.scale_rewards == "group"
    (warning,) = caplog.messages
    assert all(f"{name}={value!r}" in warning for name, value in settings.items())
    assert "Remove them to train with RAPID" in warning
    assert replace(config, learning_rate=0.1).uses_trl_loss
    RapidConfig(**VALID, **settings, objective="trl")
    assert len(caplog.messages) == 1


def test_rapid_is_default_without_settings_of_trls_loss(caplog):
    for defaults in ({}, {"scale_rewards": False}, {"router_aux_loss_coef": 0.0}, {"delta": None}):
        config = RapidConfig(**VALID, **defaults)
        assert (config.objective, config.scale_rewards) == ("rapid", "none")
    assert not caplog.messages


def test_default_of_trls_loss_is_accepted_with_other_objective(caplog):
    for objective in ("rapid", "pg", "dapo"):
        config = RapidConfig(**VALID, objective=objective, loss_type="dapo", beta=0.0, epsilon=0.2)
        assert config.objective == objective
    assert not caplog.messages


def test_passing_every_default_selects_rapid(caplog):
    """Parsers pass a value for every field, so explicit ones cannot be recognized."""
    arguments = ["--output_dir", "unused", "--use_cpu", "--report_to", "none"]
    arguments += ["--loss_type", "dapo"]
    (parsed,) = TrlParser(RapidConfig).parse_args_and_config(arguments)
    trl_config = GRPOConfig("unused", use_cpu=True, bf16=False, report_to=[])
    for config in (parsed, replace(parsed), RapidConfig.of(trl_config)):
        assert config.objective == "rapid"
    assert not caplog.messages


def test_explicit_settings_survive_subclassing_and_pickling():
    @dataclass
    class Derived(RapidConfig):
        extra: int = 0

    assert Derived(**VALID, loss_type="dapo", extra=1).uses_trl_loss
    assert "n_step" in signature(RapidConfig).parameters
    config = pickle.loads(pickle.dumps(RapidConfig(**VALID)))
    assert (config.objective, config.n_step) == ("rapid", VALID["n_step"])


@pytest.mark.parametrize(("objective", "H"), [("rapid", 1), ("rapid", 2), ("trl", 1), ("trl", 2)])
def test_defaults_of_trls_loss_match_trl(objective, H):
    config = RapidConfig(**VALID | {"objective": objective, "H": H})
    trl_config = GRPOConfig("unused", use_cpu=True, bf16=False, report_to=[])
    names = ("scale_rewards", "router_aux_loss_coef", "vllm_importance_sampling_correction")
    for name in names:
        assert (getattr(config, name) == getattr(trl_config, name)) == (objective == "trl"), name
    assert (config.disable_dropout == trl_config.disable_dropout) == (objective == "trl" and H == 1)


def test_with_logps_of_rollouts_trls_loss_has_no_dropout_and_weights_a_mismatch_once():
    """The weights pi / mu have the difference between vLLM and the policy already."""
    config = RapidConfig(**VALID | LOGGED | {"objective": "trl", "use_vllm": True})
    assert config.disable_dropout and not config.vllm_importance_sampling_correction


@pytest.mark.parametrize(
    "settings",
    [
        *({"objective": "dapo", "scale_rewards": value} for value in (True, "group")),
        {"temperature": 0.7, "generation_kwargs": SAME_DISTRIBUTION},
        # generation_kwargs take precedence, as in TRL.
        {"top_p": 0.9, "generation_kwargs": {"top_p": 1.0}},
        {"sampling_batch_size": 1, "token_budget": 1, "learning_rate": 0.0},
        {"top_k": -1, "min_p": 0},
        {"top_k": None},
        # On-policy, sampling may change the distribution.
        {"H": 1, "generation_kwargs": {"top_k": 5}},
        {"H": 1, "objective": "pg", "top_p": 0.9},
        {"H": 1, "disable_dropout": False, "neftune_noise_alpha": 5.0},
        LOGGED | {"top_p": 0.9},  # rollouts have log-probs of the policy that sampled them
    ],
)
def test_compatible_settings_are_accepted(settings):
    RapidConfig(**VALID | settings)


def test_defaults_enable_savings_but_not_trust_or_resampling():
    config = RapidConfig("unused", use_cpu=True, report_to=[])
    assert config.skip_zero_groups and config.pack and config.reuse_logp
    assert config.share_prefill is None
    assert not config.trust_sampler and not config.grading_workers and not config.bf16
    assert config.dynamic_sampling_rounds == 1


@pytest.mark.parametrize(
    ("gpu", "supported", "setting", "bf16"),
    [(1, 1, None, True), (1, 1, False, False), (1, 0, None, False), (0, 1, None, False)],
)
def test_bfloat16_is_default_only_on_gpus_with_support(monkeypatch, gpu, supported, setting, bf16):
    monkeypatch.setattr("torch.cuda.is_available", lambda: bool(gpu))
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda: bool(supported))
    get_device = RapidConfig.device.fget

    def set_up_cpu(config):  # there may be no GPU
        config.use_cpu = True
        device = get_device(config)
        config.use_cpu = False
        return device

    monkeypatch.setattr(RapidConfig, "device", property(set_up_cpu))
    assert RapidConfig("unused", report_to=[], bf16=setting).bf16 is bf16


def test_parameters_by_name_set_their_fields():
    assert RapidConfig(**VALID).settings == RapidParameters(eta=2.0, clip="advantage")
    by_name = RapidConfig(**VALID, parameters={"eta": 3.0, "clip": "both"})
    by_field = RapidConfig(**VALID, eta=3.0, clip="both")
    assert (by_name.eta, by_name.clip) == (by_field.eta, by_field.clip) == (3.0, "both")
    assert by_name.settings == by_field.settings
    assert replace(by_name, eta=4.0).settings.eta == 4.0
    dapo = {"epsilon_low": 0.1, "epsilon_high": 0.3, "rounds": 2, "overlong_buffer": 0.5}
    config = RapidConfig(**VALID, objective="dapo", parameters=dapo)
    assert (config.epsilon, config.epsilon_high, config.dynamic_sampling_rounds) == (0.1, 0.3, 2)
    assert config.settings.model_dump() == dapo


@pytest.mark.parametrize("passes_all_fields", [False, True])
def test_parameter_that_contradicts_its_field_is_refused(passes_all_fields):
    """A command line's parser passes all fields, so that RapidConfig cannot see which are set."""
    defaults = {name: getattr(RapidConfig, name) for name in TRL_LOSS_FIELDS}
    settings = VALID | (defaults if passes_all_fields else {})
    message = "parameters={'eta': 1.5} contradicts eta=3.0: set only one of them"
    with pytest.raises(ValueError, match=re.escape(message)):
        RapidConfig(**settings, parameters={"eta": 1.5}, eta=3.0)
    for eta in (1.5, None):
        assert RapidConfig(**settings, parameters={"eta": 1.5}, eta=eta).eta == 1.5
    dapo = {"objective": "dapo", "parameters": {"epsilon_low": 0.1}}
    with pytest.raises(ValueError, match=r"'epsilon_low': 0.1. contradicts epsilon=0.3"):
        RapidConfig(**VALID, **dapo, epsilon=0.3)


def test_all_contradictions_are_reported_together():
    with pytest.raises(ValueError, match=r"(?s)H=0: .*token_budget=0: .*leave beta unset"):
        RapidConfig(**VALID | RAPID | {"H": 0, "token_budget": 0, "beta": 0.1})


def test_fields_are_documented_command_line_arguments():
    parser = HfArgumentParser(RapidConfig)
    arguments = ["--output_dir", "x", "--use_cpu", "--bf16", "false", "--report_to", "none"]
    (config,) = parser.parse_args_into_dataclasses(
        [*arguments, "--eta", "3", "--clip", "both", "--H", "2", "--pack", "false"]
    )
    assert (config.eta, config.clip, config.H, config.pack) == (3.0, "both", 2, False)
    for name in RapidConfig.__annotations__:
        assert RapidConfig.__dataclass_fields__[name].metadata["help"]
        assert f"\n    {name}: " in RapidConfig.__doc__
    assert max(map(len, RapidConfig.__doc__.splitlines())) <= 100


def test_command_line_parses_micro_batch_sizes(tmp_path):
    def parse_sizes(*arguments):
        (config,) = HfArgumentParser(RapidConfig).parse_args_into_dataclasses(
            ["--output_dir", str(tmp_path), "--bf16", "False", "--use_cpu", *arguments]
        )
        return config.micro_batch_size, config.token_budget

    assert parse_sizes("--micro_batch_size", "4", "--token_budget", "4096") == (4, 4096)
    assert parse_sizes("--micro_batch_size", "auto") == (8, "auto")
    assert parse_sizes("--token_budget", "auto") == (8, "auto")


def test_command_line_parses_parameters_as_json():
    arguments = ["--output_dir", "unused", "--bf16", "False", "--use_cpu", "--objective", "cispo"]
    parser = HfArgumentParser(RapidConfig)
    (default,) = parser.parse_args_into_dataclasses(arguments)
    (config,) = parser.parse_args_into_dataclasses(
        [*arguments, "--parameters", '{"cap": 2, "H": 8}']
    )
    assert (default.parameters, default.H) == ({}, 4)
    assert (config.parameters, config.H, config.settings.cap) == ({"cap": 2}, 8, 2)


@pytest.mark.parametrize("objective", ["pg", "trl"])
def test_unknown_parameters_of_objectives_without_parameters_are_refused(objective):
    message = f"parameters={{'tua': 0.1}}: objective='{objective}' has no such parameters"
    with pytest.raises(ValueError, match=message):
        RapidConfig(**VALID | {"objective": objective}, parameters={"tua": 0.1})


def test_cpu_on_a_machine_with_a_gpu_trains_in_float32(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)
    config = RapidConfig("unused", use_cpu=True, report_to=[])
    assert config.bf16 is False
