"""Settings that contradict each other are refused, with what to change."""

import math
import pickle
from dataclasses import dataclass, replace
from inspect import signature

import pytest
from transformers import HfArgumentParser, TrainingArguments
from trl import GRPOConfig, TrlParser

from rapid.algorithms.rapid import RapidParameters
from rapid.training.config import RapidConfig

RAPID = {"objective": "rapid"}
# Arguments of generation that leave a policy at temperature 0.7 as it is.
SAME_DISTRIBUTION = {"top_k": 0, "temperature": 0.7, "do_sample": True, "num_beams": 1}
SAME_DISTRIBUTION |= {"max_new_tokens": 4}
GOOD = {
    "output_dir": "unused",
    "use_cpu": True,
    "bf16": False,
    "report_to": [],
    "H": 2,
    "n_step": 8,
    "num_generations": 4,
    "micro_batch_size": 4,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"H": 0}, "set H >= 1"),
        ({"num_generations": 0}, "set num_generations >= 2"),
        ({"parameters": {"epsilon_low": 0.1}}, "epsilon_low: is not a key; allowed: one of eta, "),
        ({"eta": 0.0}, "eta=0.0: Input should be greater than 0"),
        ({"clip": "front"}, "clip=.front.: Input should be .advantage., .both. or .nowhere."),
        ({"micro_batch_size": 0}, "set micro_batch_size >= 1"),
        ({"token_budget": "much"}, "token_budget='?much'?: set token_budget >= 1"),
        ({"per_device_train_batch_size": 2}, "leave n_step or both of these unset"),
        ({"gradient_accumulation_steps": 2}, "leave n_step or both of these unset"),
        ({"steps_per_generation": 4}, "leave it unset"),
        ({"generation_batch_size": 64}, "leave it unset"),
        ({"n_step": 10}, "n_step=10 completions are not whole groups of num_generations=4"),
        ({"n_step": 0}, "make it a multiple of 4"),
        ({"num_iterations": 3}, "leave it at 1, or H unset"),
        ({"objective": "ppo"}, "set it to one of grpo, naive-grpo, pg, .*, rapid, trl"),
        ({"objective": "sft"}, "set it to one of"),
        ({"beta": 0.1, **RAPID}, "set beta=0.0, or objective to one of grpo, naive-grpo, trl"),
        ({"top_p": 0.9}, "set top_p=1"),
        ({"top_k": 50}, "set top_p=1"),
        ({"min_p": 0.1}, "set top_p=1"),
        ({"repetition_penalty": 1.1}, "repetition_penalty=1"),
        *(
            ({"generation_kwargs": {name: value}}, f"but {name}={value!r} changes what is sampled")
            for name, value in {
                "top_k": 5,
                "temperature": 0.7,
                "typical_p": 0.9,
                "do_sample": False,
                "num_beams": 2,
                "min_new_tokens": 3,
            }.items()
        ),
        ({"generation_kwargs": '{"top_k": 5}'}, "but top_k=5 changes"),  # of a command line
        ({"top_p": 0.9, "generation_kwargs": {"top_k": 5}}, "but top_p=0.9, top_k=5 changes"),
        ({"grading_workers": -1}, "set grading_workers >= 0"),
        ({"max_completion_length": None, "objective": "dr-grpo"}, "dr-grpo divides by it"),
        ({"token_budget": 0}, "set token_budget >= 1"),
        ({"loss_type": "grpo", **RAPID}, "leave it at 'dapo', or set objective='trl'"),
        ({"scale_rewards": "group", **RAPID}, "objective='rapid' have 'none'; leave it unset"),
        ({"scale_rewards": True, **RAPID}, "have 'none'; leave it unset, or set objective='trl'"),
        ({"scale_rewards": False, "objective": "dapo"}, "'dapo' have 'group'; leave it unset"),
        ({"epsilon": 0.3, **RAPID}, r"set epsilon=0.2, or .* grpo, naive-grpo, dapo, dr-grpo, trl"),
        ({"epsilon_high": 0.3, "objective": "grpo"}, "epsilon_high=None, or objective .* dapo"),
        ({"clip": "front", "objective": "grpo"}, "set clip='advantage', or .* rapid"),
        ({"eta": 3.0, "objective": "pg"}, "set eta=2.0, or objective to one of rapid$"),
        ({"router_aux_loss_coef": 0.01, **RAPID}, "objective='rapid' decides; leave it at None"),
        ({"vespo_k_pos": 1.0, "objective": "dapo"}, "objective='dapo' decides; leave it at 2.0"),
        ({"vllm_importance_sampling_correction": True, **RAPID}, "decides; leave it at None"),
        ({"eta": 3.0, "delta": 1.5}, "objective='trl' has no such parameter; set eta=2.0, or"),
        ({"sampling_batch_size": 0}, "set sampling_batch_size >= 1"),
        (
            {"sampling_batch_size": 6, "use_vllm": True},
            "sampling_batch_size=6 .* make it a multiple of 4",
        ),
        ({"learning_rate": -1.0}, "set learning_rate >= 0.0, and finite"),
        ({"learning_rate": math.inf}, "learning_rate=inf: set"),
        ({"temperature": 0.0}, "set temperature > 0, and finite"),
        ({"disable_dropout": False}, "set disable_dropout=True, or H=1"),
        ({"neftune_noise_alpha": 5.0}, "neftune_noise_alpha=5.0: .* or set H=1"),
        ({"vllm_structured_outputs_regex": "a+"}, "but vllm_structured_outputs_regex='a.' changes"),
        (
            {"auto_find_batch_size": True, "top_p": 0.9},
            "(?s)set micro_batch_size='auto' or lower it.*but top_p=",
        ),
        (
            {"dynamic_sampling_by": "sum"},
            "dynamic_sampling_by='sum': set it to rewards or accuracy",
        ),
        ({"num_generations_eval": 1, "objective": "rloo"}, "num_generations_eval=1: the baseline"),
        ({"num_generations_eval": 1, "baseline": "others"}, "num_generations_eval=1: the baseline"),
    ],
)
def test_a_contradiction_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        RapidConfig(**{**GOOD, **change})


TRL = {"output_dir": "unused", "use_cpu": True, "bf16": False, "report_to": []}
P, G, S, N = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "generation_batch_size",
)


@pytest.mark.parametrize(
    ("processes", "given", "n_step", "H", "micro"),
    [
        (1, {}, 32, 4, 8),  # RAPID's own
        (1, {P: 8}, 8, 1, 8),
        (1, {P: 3, "num_generations": 3}, 3, 1, 3),
        (2, {P: 8, G: 4}, 64, 1, 8),
        (1, {P: 16, S: 4, "num_generations": 4}, 16, 4, 16),
        (1, {P: 2, G: 4, S: 16, "num_generations": 4}, 8, 4, 2),
        (1, {P: 8, N: 64}, 8, 8, 8),
        (2, {P: 4, G: 2, N: 64}, 16, 4, 4),
        (1, {P: 8, N: 64, "num_iterations": 2}, 8, 16, 8),
        (1, {P: 8, G: 4, N: 16}, 32, 1, 8),
        (1, {P: 8, "num_iterations": 2}, 8, 2, 8),
        (1, {P: 8, S: 2, "num_iterations": 3}, 8, 6, 8),
        (1, {P: 8, G: 4, S: 2}, 32, 1, 8),  # TRL samples twice for one step
        (1, {G: 2}, 16, 1, 8),  # of TRL's 8
        (1, {P: 8, G: 4, "H": 4}, 32, 4, 8),
        (1, {"n_step": 16, S: 2}, 16, 2, 8),
        (1, {"n_step": 24, "num_generations": 12}, 24, 4, 8),
        (1, {"num_generations": 4}, 32, 4, 8),
    ],
)
def test_batch_sizes_of_trl_say_what_a_step_is(monkeypatch, processes, given, n_step, H, micro):
    monkeypatch.setattr(GRPOConfig, "world_size", processes)
    config = RapidConfig(**TRL | given)
    for one in (config, replace(config, learning_rate=0.1)):
        assert (one.n_step, one.H, one.micro_batch_size) == (n_step, H, micro)
        assert (one.num_iterations, one.gradient_accumulation_steps) == (1, 1)
    if {P, S, N, "num_iterations"} & {*given} and "H" not in given:
        assert H * n_step == _sampled_by_trl(processes, given)


def _sampled_by_trl(processes: int, given: dict) -> int:
    """Return the completions that GRPOTrainer uses between two times of sampling, or a step's."""
    own = {name: value for name, value in given.items() if name != "n_step"}
    if "n_step" in given:
        own[P] = given["n_step"] // processes
    config = GRPOConfig(**TRL | own)
    each = config.per_device_train_batch_size * processes
    between = config.steps_per_generation * config.num_iterations
    return each * max(between, config.gradient_accumulation_steps)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({P: 8, G: 2, S: 3}, "steps_per_generation=3 .* are not H=1 optimizer steps"),
        ({P: 8, S: 4, "H": 2}, "steps_per_generation=4 .* are not H=2 .* leave it unset, or H"),
        ({P: 8, N: 64, "H": 2}, "generation_batch_size=64 .* are not those of H=2 .* or H"),
        ({P: 24, G: 2, "n_step": 32}, r"in each of 1 process.es. are not n_step=32"),
        ({P: 6, "num_generations": 4}, "n_step=6 .* make it a multiple of 4, by TRL's batch sizes"),
    ],
)
def test_batch_sizes_of_trl_that_make_no_whole_steps_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        RapidConfig(**TRL | given)


def test_masked_completions_have_no_weights_for_a_baseline():
    masked = {**TRL, P: 8, "mask_truncated_completions": True}
    with pytest.raises(ValueError, match=r"objective='rapid' weighs their rewards .* set H=1"):
        RapidConfig(**masked, H=2)
    assert RapidConfig(**masked, H=1).mask_truncated_completions
    assert RapidConfig(**masked, H=2, objective="dapo").H == 2


def test_a_grpo_config_is_taken_over():
    theirs = GRPOConfig(
        **TRL | {P: 8, S: 4, "num_generations": 4, "learning_rate": 0.1, "temperature": 0.7}
    )
    config = RapidConfig.of(theirs)
    assert (config.n_step, config.H, config.num_generations) == (8, 4, 4)
    assert (config.learning_rate, config.temperature, config.output_dir) == (0.1, 0.7, "unused")
    assert config.scale_rewards == "none"
    assert RapidConfig.of(config) is config
    own = RapidConfig.of(replace(theirs, loss_type="grpo", delta=1.5, generation_batch_size=None))
    assert (own.objective, own.loss_type, own.delta) == ("trl", "grpo", 1.5)
    assert RapidConfig.of(None).output_dir == "rapid-output"
    with pytest.raises(TypeError, match="args is a TrainingArguments: pass a RapidConfig"):
        RapidConfig.of(TrainingArguments("unused", use_cpu=True, report_to=[]))


@pytest.mark.parametrize(
    "given",
    [
        {"loss_type": "grpo"},
        {"beta": 0.1, "epsilon": 0.3},
        {"scale_rewards": True},
        {"loss_type": "dapo", "epsilon": 0.2},  # TRL's defaults, written out
        {"beta": 0.0, "importance_sampling_level": "token"},
        {"vllm_importance_sampling_clip_max": 3.0},
    ],
)
def test_a_setting_of_trls_loss_asks_for_that_loss(caplog, given):
    config = RapidConfig(**GOOD, **given)
    assert config.objective == "trl" and config.uses_trl_loss and config.scale_rewards == "group"
    (warning,) = caplog.messages
    assert all(f"{name}={value!r}" in warning for name, value in given.items())
    assert "Leave them out to train with RAPID" in warning
    assert replace(config, learning_rate=0.1).uses_trl_loss
    RapidConfig(**GOOD, **given, objective="trl")
    assert len(caplog.messages) == 1


def test_without_such_a_setting_it_is_rapid(caplog):
    for none in ({}, {"scale_rewards": False}, {"router_aux_loss_coef": 0.0}, {"delta": None}):
        config = RapidConfig(**GOOD, **none)
        assert (config.objective, config.scale_rewards) == ("rapid", "none")
    assert not caplog.messages


def test_a_default_of_trls_loss_is_no_contradiction(caplog):
    for objective in ("rapid", "pg", "dapo"):
        config = RapidConfig(**GOOD, objective=objective, loss_type="dapo", beta=0.0, epsilon=0.2)
        assert config.objective == objective
    assert not caplog.messages


def test_who_passes_every_field_means_none_of_them(caplog):
    """Where all fields have a value it cannot be told which were written out."""
    arguments = [
        "--output_dir",
        "unused",
        "--use_cpu",
        "--report_to",
        "none",
        "--loss_type",
        "dapo",
    ]
    (parsed,) = TrlParser(RapidConfig).parse_args_and_config(arguments)
    theirs = GRPOConfig("unused", use_cpu=True, bf16=False, report_to=[])
    for config in (parsed, replace(parsed), RapidConfig.of(theirs)):
        assert config.objective == "rapid"
    assert not caplog.messages


def test_what_is_written_out_is_remembered_by_subclasses_and_shown_in_the_signature():
    @dataclass
    class Derived(RapidConfig):
        more: int = 0

    assert Derived(**GOOD, loss_type="dapo", more=1).uses_trl_loss
    assert "n_step" in signature(RapidConfig).parameters
    config = pickle.loads(pickle.dumps(RapidConfig(**GOOD)))
    assert (config.objective, config.n_step) == ("rapid", GOOD["n_step"])


@pytest.mark.parametrize(("objective", "H"), [("rapid", 1), ("rapid", 2), ("trl", 1), ("trl", 2)])
def test_defaults_of_trls_loss_are_trls(objective, H):
    config = RapidConfig(**GOOD | {"objective": objective, "H": H})
    theirs = GRPOConfig("unused", use_cpu=True, bf16=False, report_to=[])
    names = ("scale_rewards", "router_aux_loss_coef", "vllm_importance_sampling_correction")
    for name in names:
        assert (getattr(config, name) == getattr(theirs, name)) == (objective == "trl"), name
    assert (config.disable_dropout == theirs.disable_dropout) == (objective == "trl" and H == 1)


@pytest.mark.parametrize(
    "settings",
    [
        *({"objective": "dapo", "scale_rewards": same} for same in (True, "group")),
        {"temperature": 0.7, "generation_kwargs": SAME_DISTRIBUTION},
        {"top_p": 0.9, "generation_kwargs": {"top_p": 1.0}},  # these prevail, as in TRL
        {"sampling_batch_size": 1, "token_budget": 1, "learning_rate": 0.0},
        {"top_k": -1, "min_p": 0},
        {"top_k": None},
        {"H": 1, "generation_kwargs": {"top_k": 5}},  # on-policy sampling may be shaped
        {"H": 1, "objective": "pg", "top_p": 0.9},
        {"H": 1, "disable_dropout": False, "neftune_noise_alpha": 5.0},
    ],
)
def test_what_contradicts_nothing_is_taken(settings):
    RapidConfig(**GOOD | settings)


@pytest.mark.parametrize(
    ("processes", "H", "n_step", "each"),
    [
        (1, 2, 8, 8),
        (4, 1, 4, 1),
        (4, 4, 4, 1),
        (2, 1, 4, 2),
        (8, 2, 4, 1),
        (3, 3, 4, 2),
        (8, 2, 20, 3),
    ],
)
def test_batch_sizes_follow_from_h_and_n_step_and_groups_may_be_torn(
    monkeypatch, processes, H, n_step, each
):
    monkeypatch.setattr(RapidConfig, "world_size", processes)
    config = RapidConfig(**GOOD | {"H": H, "n_step": n_step})
    for one in (config, replace(config, learning_rate=0.1)):
        assert [getattr(one, name) for name in (P, G, S, N)] == [each, 1, H, H * n_step]


def test_an_inference_batch_that_processes_cannot_share_is_refused(monkeypatch):
    monkeypatch.setattr(RapidConfig, "world_size", 8)
    with pytest.raises(ValueError, match=r"make H \* n_step a multiple of 8"):
        RapidConfig(**GOOD | {"H": 1, "n_step": 4})


def test_by_default_all_is_saved_and_nothing_trusted_or_sampled_anew():
    config = RapidConfig("unused", use_cpu=True, report_to=[])
    assert config.skip_zero_groups and config.pack and config.reuse_logp and config.share_prefill
    assert not config.trust_sampler and not config.grading_workers and not config.bf16
    assert config.dynamic_sampling_rounds == 1


@pytest.mark.parametrize(
    ("gpu", "able", "given", "bf16"),
    [(1, 1, None, True), (1, 1, False, False), (1, 0, None, False), (0, 1, None, False)],
)
def test_bfloat16_is_for_gpus_that_have_it(monkeypatch, gpu, able, given, bf16):
    monkeypatch.setattr("torch.cuda.is_available", lambda: bool(gpu))
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda: bool(able))
    assert RapidConfig("unused", use_cpu=True, report_to=[], bf16=given).bf16 is bf16


def test_parameters_by_name_are_the_fields_that_mean_them():
    assert RapidConfig(**GOOD).settings == RapidParameters(eta=2.0, clip="advantage")
    by_name = RapidConfig(**GOOD, parameters={"eta": 3.0, "clip": "both"})
    by_field = RapidConfig(**GOOD, eta=3.0, clip="both")
    assert (by_name.eta, by_name.clip) == (by_field.eta, by_field.clip) == (3.0, "both")
    assert by_name.settings == by_field.settings
    assert replace(by_name, eta=4.0).settings.eta == 4.0
    dapo = {"epsilon_low": 0.1, "epsilon_high": 0.3, "rounds": 2, "overlong_buffer": 0.5}
    config = RapidConfig(**GOOD, objective="dapo", parameters=dapo)
    assert (config.epsilon, config.epsilon_high, config.dynamic_sampling_rounds) == (0.1, 0.3, 2)
    assert config.settings.model_dump() == dapo


def test_what_is_wrong_is_said_together():
    with pytest.raises(ValueError, match=r"(?s)set H >= 1.*set token_budget >= 1.*set beta=0"):
        RapidConfig(**GOOD | RAPID | {"H": 0, "token_budget": 0, "beta": 0.1})


def test_fields_are_arguments_of_a_command_line_and_documented():
    parser = HfArgumentParser(RapidConfig)
    arguments = ["--output_dir", "x", "--use_cpu", "--bf16", "false", "--report_to", "none"]
    (config,) = parser.parse_args_into_dataclasses(
        [*arguments, "--eta", "3", "--clip", "both", "--H", "2", "--pack", "false"]
    )
    assert (config.eta, config.clip, config.H, config.pack) == (3.0, "both", 2, False)
    for name in RapidConfig.__annotations__:
        assert RapidConfig.__dataclass_fields__[name].metadata["help"]
        assert f"\n        {name}: " in RapidConfig.__doc__
    assert max(map(len, RapidConfig.__doc__.splitlines())) <= 100


def test_a_command_line_gives_sizes_of_passes_as_texts(tmp_path):
    def parsed(*arguments):
        (config,) = HfArgumentParser(RapidConfig).parse_args_into_dataclasses(
            ["--output_dir", str(tmp_path), "--bf16", "False", "--use_cpu", *arguments]
        )
        return config.micro_batch_size, config.token_budget

    assert parsed("--micro_batch_size", "4", "--token_budget", "4096") == (4, 4096)
    assert parsed("--micro_batch_size", "auto") == (8, "auto")
    assert parsed("--token_budget", "auto") == (8, "auto")
