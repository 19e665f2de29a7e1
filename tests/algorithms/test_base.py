"""Declarations of algorithm classes: bounds of parameters, names, plot styles, batch sizes."""

import pytest
import torch
from pydantic import ValidationError

from rapid.algorithms import ALGORITHMS, base
from rapid.algorithms.base import Algorithm
from rapid.config.params import load
from tests.algorithms.test_zero_gradients import SETTINGS

RL_ALGORITHMS = [algorithm for algorithm in ALGORITHMS.values() if not algorithm.is_supervised]


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("grpo", "epsilon"),
        ("dr-grpo", "epsilon"),
        ("dapo", "epsilon_low"),
        ("dapo", "overlong_buffer"),
        ("gspo", "clip_low"),
        ("dppo", "divergence"),
    ],
)
def test_shares_must_be_between_0_and_1(name, share):
    """1 - epsilon must be positive, and probabilities change by at most 1."""
    parameter_class, settings = ALGORITHMS[name].parameters, SETTINGS.get(name, {})
    for allowed in (0.01, 0.99):
        assert getattr(parameter_class(**settings | {share: allowed}), share) == allowed
    for refused in (0, 1.01 if name == "dppo" else 1):
        with pytest.raises(ValidationError, match=share):
            parameter_class(**settings | {share: refused})


def test_demonstrations_come_from_teacher_by_default(values):
    made_demonstrations = {"demonstrations": 5, "error_rate": 0.2}
    values["sft"] = {
        key: value for key, value in values["sft"].items() if key not in made_demonstrations
    }
    assert not made_demonstrations.keys() & load(values).sft.model_dump().keys()
    values["sft"] |= made_demonstrations
    assert made_demonstrations.items() <= load(values).sft.model_dump().items()


@pytest.mark.parametrize(
    ("name", "key", "value", "sampler", "allowed"),
    [
        ("sft", "batch", 6, "vllm", True),
        ("sft", "batch", 5, "vllm", False),
        ("naive_grpo", "sampling_batch", 8, "vllm", True),
        ("naive_grpo", "sampling_batch", 6, "vllm", False),
        ("naive_grpo", "sampling_batch", 6, "transformers", True),
    ],
)
def test_batches_must_divide_among_processes_and_vllm_groups(
    values, name, key, value, sampler, allowed
):
    params = load(values)
    compute = params.compute.model_copy(update={"processes": 2, "sampler": sampler})
    section = getattr(params, name).model_copy(update={key: value})
    params = params.model_copy(update={"compute": compute, name: section})
    error = ALGORITHMS[name.replace("_", "-")].find_config_error(params, 4)
    assert (error is None) == allowed
    assert allowed or error[:2] == (f"{name}.{key}", value)


def test_each_name_belongs_to_one_algorithm():
    for name in ALGORITHMS:
        for variant in (name, f"{name}-H4", f"{name}-H4,epochs=2", f"{name},epochs=2"):
            assert [
                algorithm.name
                for algorithm in ALGORITHMS.values()
                if algorithm.matches_name(variant)
            ] == [name]


def test_plot_styles_for_different_h_differ():
    for algorithm in RL_ALGORITHMS:
        assert len({algorithm.get_plot_style(H) for H in (1, 2, 4, 8)}) == 4


def test_only_naive_grpo_uses_a_vllm_server_and_only_dapo_resamples():
    assert [algorithm.name for algorithm in RL_ALGORITHMS if algorithm.uses_vllm_server] == [
        "naive-grpo"
    ]
    settings = ALGORITHMS["dapo"].parameters(**SETTINGS["dapo"] | {"rounds": 3})
    rounds = {
        algorithm.name: algorithm.get_sampling_rounds(settings) for algorithm in RL_ALGORITHMS
    }
    assert rounds == dict.fromkeys(rounds, 1) | {"dapo": 3}


def test_former_names_of_members_work_with_a_warning():
    def select_unequal_groups(self, settings, on_policy):
        return "unequal"

    members = {"name": "mine", "H": "none", "gradient_groups": select_unequal_groups}
    with pytest.warns(FutureWarning) as warnings:
        algorithm = type("Mine", (Algorithm,), members)()
    assert [str(warning.message) for warning in warnings] == [
        "Mine.H is now called h_in_name: rename it",
        "Mine.gradient_groups is now called get_gradient_group_kind: rename it",
    ]
    assert algorithm.name_pattern == "mine"
    rewards = torch.tensor([1.0, 1.0, 0.0, 1.0])
    has_gradient = algorithm.find_groups_with_gradient(rewards, 2, None, on_policy=True)
    assert has_gradient.tolist() == [False, True]
    with pytest.warns(FutureWarning, match="Look is now called PlotStyle"):
        assert base.Look is base.PlotStyle


def test_argument_of_a_loss_without_a_value_is_refused_with_the_allowed_names():
    def compute_loss(logp, advantages):
        return (logp * advantages).sum(), {}

    allowed = r"has the argument 'advantages'.* logp, .*, rewards, .*limit .* and cap \(the fields"
    members = {"name": "mine", "loss_function": staticmethod(compute_loss)}
    with pytest.raises(TypeError, match=rf"^Mine.loss_function {allowed}"):
        type("Mine", (type(ALGORITHMS["cispo"]),), members)
    with pytest.raises(TypeError, match="and no others"):
        type("Mine", (type(ALGORITHMS["pg"]),), members)

    members["loss_function"] = staticmethod(lambda logp, cap: None)
    type("Mine", (type(ALGORITHMS["cispo"]),), members)  # a parameter of this class
