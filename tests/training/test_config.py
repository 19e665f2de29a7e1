"""Settings that contradict each other are refused, with what to change."""

from dataclasses import replace

import pytest
from transformers import HfArgumentParser

from rapid.algorithms.rapid import RapidParameters
from rapid.training.config import RapidConfig

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


def test_batch_sizes_follow_from_h_and_n_step():
    config = RapidConfig(**GOOD)
    assert config.generation_batch_size == 16
    assert config.steps_per_generation == 2
    assert config.gradient_accumulation_steps == 1
    assert config.per_device_train_batch_size == 8


def test_a_config_can_be_made_from_another():
    config = RapidConfig(**GOOD)
    assert replace(config, learning_rate=0.1).generation_batch_size == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"H": 0}, "set H >= 1"),
        ({"eta": 0.0}, "eta=0.0: Input should be greater than 0"),
        ({"clip": "front"}, "clip=.front.: Input should be .advantage., .both. or .nowhere."),
        ({"micro_batch_size": 2}, "make it a multiple of 4"),
        ({"micro_batch_size": 0}, "make it a multiple of 4"),
        ({"per_device_train_batch_size": 2}, "leave it unset"),
        ({"gradient_accumulation_steps": 2}, "leave it unset"),
        ({"steps_per_generation": 4}, "leave it unset"),
        ({"generation_batch_size": 64}, "leave it unset"),
        ({"n_step": 10}, "n_step=10 completions are not whole groups of num_generations=4"),
        ({"n_step": 2}, "make it a multiple of 4"),
        ({"num_iterations": 2}, "raise H instead"),
        ({"objective": "ppo"}, "set it to one of grpo, naive-grpo, pg, dapo, rapid"),
        ({"objective": "sft"}, "set it to one of"),
        ({"beta": 0.1}, "set beta=0"),
        ({"top_p": 0.9}, "set top_p=1"),
        ({"top_k": 50}, "set top_p=1"),
        ({"min_p": 0.1}, "set top_p=1"),
        ({"repetition_penalty": 1.1}, "repetition_penalty=1"),
        *(
            ({"generation_kwargs": {name: value}}, f"but {name}={value!r} changes what is sampled")
            for name, value in {
                "top_k": 5,
                "top_p": 0.9,
                "min_p": 0.1,
                "temperature": 0.7,
                "repetition_penalty": 1.1,
                "typical_p": 0.9,
                "do_sample": False,
                "num_beams": 2,
                "min_new_tokens": 3,
            }.items()
        ),
        ({"generation_kwargs": '{"top_k": 5}'}, "but top_k=5 changes"),  # of a command line
        ({"top_p": 0.9, "generation_kwargs": {"top_k": 5}}, "but top_p=0.9, top_k=5 changes"),
        ({"grading_workers": -1}, "set grading_workers >= 0"),
        ({"token_budget": 0}, "set token_budget >= 1"),
        ({"loss_type": "grpo"}, "objective='rapid' decides"),
        ({"scale_rewards": "group"}, "objective='rapid' decides"),
        (
            {"vllm_importance_sampling_correction": True},
            "objective=.rapid. decides; leave it at False",
        ),
        ({"sampling_batch_size": 0}, "set sampling_batch_size >= 1"),
        (
            {"sampling_batch_size": 6, "use_vllm": True},
            "sampling_batch_size=6 .* make it a multiple of 4",
        ),
    ],
)
def test_a_contradiction_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        RapidConfig(**{**GOOD, **change})


@pytest.mark.parametrize(
    ("processes", "H", "n_step", "each"),
    [(4, 1, 4, 1), (4, 4, 4, 1), (2, 1, 4, 2), (8, 2, 4, 1), (3, 3, 4, 2), (8, 2, 20, 3)],
)
def test_groups_may_be_torn_between_processes(monkeypatch, processes, H, n_step, each):
    monkeypatch.setattr(RapidConfig, "world_size", processes)
    config = RapidConfig(**GOOD | {"H": H, "n_step": n_step})
    assert config.generation_batch_size == H * n_step
    assert config.steps_per_generation == H
    assert config.per_device_train_batch_size == each
    assert replace(config, learning_rate=0.1).steps_per_generation == H


def test_an_inference_batch_that_processes_cannot_share_is_refused(monkeypatch):
    monkeypatch.setattr(RapidConfig, "world_size", 8)
    with pytest.raises(ValueError, match=r"make H \* n_step a multiple of 8"):
        RapidConfig(**GOOD | {"H": 1, "n_step": 4})


def test_generation_kwargs_may_say_what_is_so_anyway():
    same = {"top_k": 0, "temperature": 0.7, "do_sample": True, "max_new_tokens": 4}
    RapidConfig(**GOOD, temperature=0.7, generation_kwargs=same)
    RapidConfig(**GOOD, top_p=0.9, generation_kwargs={"top_p": 1.0})  # these prevail, as in TRL


def test_on_policy_may_truncate_sampling():
    RapidConfig(**GOOD | {"H": 1}, generation_kwargs={"top_k": 5})
    RapidConfig(**{**GOOD, "H": 1, "objective": "pg", "top_p": 0.9})


def test_parameters_by_name_are_the_fields_that_mean_them():
    by_name = RapidConfig(**GOOD, parameters={"eta": 3.0, "clip": "both"})
    by_field = RapidConfig(**GOOD, eta=3.0, clip="both")
    assert (by_name.eta, by_name.clip) == (by_field.eta, by_field.clip) == (3.0, "both")
    assert by_name.settings == by_field.settings
    assert replace(by_name, eta=4.0).settings.eta == 4.0
    dapo = {"epsilon_low": 0.1, "epsilon_high": 0.3, "rounds": 2, "overlong_buffer": 0.5}
    config = RapidConfig(**GOOD, objective="dapo", parameters=dapo)
    assert (config.epsilon, config.epsilon_high, config.dynamic_sampling_rounds) == (0.1, 0.3, 2)
    assert config.settings.model_dump() == dapo


def test_a_parameter_of_another_algorithm_is_refused():
    with pytest.raises(ValueError, match=r"epsilon_low=0.1: Extra inputs are not permitted"):
        RapidConfig(**GOOD, parameters={"epsilon_low": 0.1})


def test_what_is_wrong_is_said_together():
    with pytest.raises(ValueError, match=r"(?s)set H >= 1.*set token_budget >= 1.*set beta=0"):
        RapidConfig(**GOOD | {"H": 0, "token_budget": 0, "beta": 0.1})


def test_rapids_parameters_are_said_once():
    config = RapidConfig(**GOOD)
    assert config.settings == RapidParameters(eta=2.0, clip="advantage")
    for name, field in RapidParameters.model_fields.items():
        assert RapidConfig.__dataclass_fields__[name].metadata["help"] == field.description


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
