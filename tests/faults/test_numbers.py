"""Numbers that are infinite, NaN or out of range end a run with an error that says why.

They get neither from a reward into the weights nor from the weights into completions.
"""

import itertools
import random
import re
from shutil import copytree

import pytest
from pydantic import ValidationError
from transformers import AutoConfig, AutoModelForCausalLM

from rapid import RapidTrainer
from rapid.artifacts.demonstrations import Demonstration
from rapid.config.params import load
from rapid.grading.verdicts import Verdict
from rapid.sampling import sample
from rapid.training.sft import build_sft_trainer
from tests.conftest import load_default_values
from tests.training.loops import train_rapid

NOT_FINITE = [float("inf"), -float("inf"), float("nan")]
OBJECTIVES = ["rapid", "pg", "grpo", "dapo", "trl"]
SAMPLING = {"max_tokens": 4, "temperature": 1.0, "top_p": 1.0, "seed": 0}


def run_with_every_loss(fault: str, times: int):
    """Run a test with each loss, graded in batches and one by one."""
    cases = itertools.product(OBJECTIVES, [0, 2])
    parametrized = pytest.mark.parametrize(("objective", "workers"), cases)
    return lambda test: pytest.mark.slow(pytest.mark.fault(fault, times=times)(parametrized(test)))


@pytest.fixture
def train(toy_model, tmp_path, objective, workers):
    """Return a function that trains for three steps."""

    def train(reward="text_sum_reward", **settings):
        sizes = {"max_steps": 3, "H": 1, "grading_workers": workers}
        return train_rapid(toy_model, tmp_path, objective, reward, **sizes | settings)

    return train


@run_with_every_loss("training values: infinite reward", times=3)
def test_an_infinite_reward_ends_the_run(train):
    for reward in (float("inf"), -float("inf"), 1e300):

        def constant(completions, reward=reward, **_):
            return [reward] * len(completions)

        with pytest.raises(
            ValueError, match=r"constant gave the reward -?inf to the compl"
        ) as error:
            train(constant)
        assert "prompt" in str(error.value)
        assert "at step 1, " in error.value.__notes__[-1]


@run_with_every_loss("training values: exception in a reward function", times=3)
def test_an_error_of_a_reward_function_names_the_step_and_the_completions(train, workers):
    for failing_step in range(3):

        def broken(completions, trainer_state, failing_step=failing_step, **_):
            if trainer_state.global_step == failing_step:
                raise ConnectionError("no server")
            return [float(len(text) % 2) for text in completions]

        with pytest.raises(ConnectionError, match="no server") as error:
            train(broken)
        *sample_notes, step_note = error.value.__notes__
        place = f"at step {failing_step + 1}, with 16 completions, the first is of the prompt "
        assert place in step_note
        assert bool(sample_notes) == bool(workers)


@run_with_every_loss("training values: diverging learning rate", times=2)
def test_diverging_weights_end_the_run(train):
    for rate, steps in ((1e10, 3), (1e300, 1)):  # the second in the last step of a run
        with pytest.raises(
            FloatingPointError, match=r"loss is|weights have|probabilities"
        ) as error:
            train(learning_rate=rate, max_steps=steps)
        message = "".join([str(error.value), *getattr(error.value, "__notes__", [])])
        assert re.search("step [1-3]", message)


@pytest.mark.slow
@pytest.mark.fault("training values: diverging learning rate", times=3)
def test_diverging_weights_end_sft(toy_model, tmp_path):
    demonstration = Demonstration(id="a", prompt="a", message="a", completion="b")
    settings = {"output_dir": str(tmp_path), "save_strategy": "no", "use_cpu": True, "bf16": False}
    for rate in (1e30, 1e35, 1e38):
        params = load(load_default_values()).sft.model_copy(
            update={"learning_rate": rate, "batch": 1}
        )
        with pytest.raises(FloatingPointError, match=r"step [1-3]: weights have become"):
            build_sft_trainer(
                toy_model, [demonstration], params, settings | {"report_to": []}
            ).train()


@run_with_every_loss("training values: infinite or NaN loss", times=3)
def test_a_loss_that_is_not_finite_ends_the_run(train):
    """The gradient and the weights are finite here."""
    for offset in NOT_FINITE:

        class OffsetLoss(RapidTrainer):
            def _compute_loss(self, model, inputs, offset=offset):
                return super()._compute_loss(model, inputs) + offset

        with pytest.raises(FloatingPointError, match=rf"step 1: the loss is {offset}"):
            train(trainer_class=OffsetLoss)


@pytest.mark.fault("training values: grader's reward outside [0, 1]", times=20)
def test_the_reward_of_a_verdict_is_from_0_to_1():
    for reward in [*NOT_FINITE, *(n / 7 for n in range(8, 16)), *(-n / 7 for n in range(1, 10))]:
        with pytest.raises(ValidationError):
            Verdict(reward=reward, reason="passed")


@pytest.mark.fault("training values: infinite or NaN weights at the start", times=20)
def test_a_model_with_nan_probabilities_is_not_sampled_from(toy_model, tmp_path):
    copytree(toy_model, tmp_path, dirs_exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(toy_model)
    matrices = [tensor for tensor in model.parameters() if tensor.ndim == 2]
    for number in range(20):
        tensor = random.Random(number).choice(matrices)
        original_weights = tensor.data.clone()
        tensor.data[:] = (float("nan"), float("inf"))[number % 2]
        model.save_pretrained(tmp_path)
        with pytest.raises(FloatingPointError, match="probabilities are NaN"):
            sample("transformers", tmp_path, ["a", "bc"], **SAMPLING)
        tensor.data = original_weights


@pytest.mark.fault("training values: prompt longer than the context", times=20)
def test_a_prompt_that_leaves_no_room_for_a_completion_is_refused(toy_model, tmp_path):
    copytree(toy_model, tmp_path, dirs_exist_ok=True)
    config = AutoConfig.from_pretrained(toy_model)
    config.max_position_embeddings = 8
    config.save_pretrained(tmp_path)
    for length in range(20):
        with pytest.raises(ValueError, match="takes from 1 to 7"):
            sample("transformers", tmp_path, ["a" * 3, "b" * (8 + length)], **SAMPLING)
