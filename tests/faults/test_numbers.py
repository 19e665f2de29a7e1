"""Numbers out of range, and samples of which nothing can be learned: a run ends there, and says why.

Nothing that is no number flows on, from a reward into weights or from weights into completions.
"""

import itertools
import os
import random
import re
import signal
import subprocess
import sys
from shutil import copytree

import pytest
import torch
from datasets import Dataset, IterableDataset
from pydantic import ValidationError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from rapid import RapidConfig, RapidTrainer
from rapid.artifacts.demonstrations import Demonstration
from rapid.config.params import load
from rapid.grading.verdicts import Verdict
from rapid.sampling import sample
from rapid.training.sft import sft_trainer
from tests.conftest import ROOT, default_values
from tests.training.loops import COMMON, run, untrained, weights

NOT_FINITE = [float("inf"), -float("inf"), float("nan")]
OBJECTIVES = ["rapid", "pg", "grpo", "dapo", "trl"]
LOOPS = list(itertools.product(OBJECTIVES, [0, 2]))
ASKED = {"max_tokens": 4, "temperature": 1.0, "top_p": 1.0, "seed": 0}  # of a sampler


def loops(fault: str, times: int = 2):
    """Run a test with each loss, graded in batches and one by one."""
    marked = pytest.mark.parametrize(("objective", "workers"), LOOPS)
    return lambda test: pytest.mark.slow(pytest.mark.fault(fault, times=times)(marked(test)))


def always(reward):
    def constant(completions, **_):
        return [reward] * len(completions)

    return constant


@pytest.fixture
def short(toy_model, tmp_path, objective, workers):
    """A function that trains for three steps."""

    def short(reward="digits_sum", **settings):
        sizes = {"max_steps": 3, "H": 1, "grading_workers": workers}
        return run(toy_model, tmp_path, objective, reward, **sizes | settings)

    return short


@loops("an infinite reward", times=3)
def test_an_infinite_reward_ends_the_run(short):
    for reward in (float("inf"), -float("inf"), 1e300):
        with pytest.raises(ValueError, match=r"constant gave the reward -?inf to the compl") as end:
            short(always(reward))
        assert "prompt" in str(end.value)
        assert "at step 1, " in end.value.__notes__[-1]


@loops("no reward: None or NaN")
def test_where_nothing_is_graded_nothing_is_learned_and_once_it_is_said(short, toy_model, caplog):
    for reward in (None, float("nan")):
        caplog.clear()
        with caplog.at_level("WARNING", "rapid"):
            trainer = short(always(reward))
        assert torch.equal(weights(trainer), untrained(toy_model))
        said = [text for text in caplog.messages if "completions was graded" in text]
        assert len(said) == 1
        assert said[0].startswith("step 1: none of 16 completions was graded, the first of the p")


@loops("a finite reward outside [0, 1]")
def test_a_finite_reward_is_taken(short):
    for scale in (-100.0, 1e6):

        def graded(completions, scale=scale, **_):
            return [scale * (len(text) % 3 - 1) for text in completions]

        assert weights(short(graded)).isfinite().all()


@loops("a reward function that raises", times=3)
def test_what_a_reward_function_raises_names_step_and_sample(short, workers):
    for at in range(3):

        def broken(completions, trainer_state, at=at, **_):
            if trainer_state.global_step == at:
                raise ConnectionError("no server")
            return [float(len(text) % 2) for text in completions]

        with pytest.raises(ConnectionError, match="no server") as end:
            short(broken)
        *sample, step = end.value.__notes__
        assert f"at step {at + 1}, with 16 completions, the first of the prompt " in step
        assert bool(sample) == bool(workers)


@loops("a learning rate that blows weights up")
def test_weights_that_blow_up_end_the_run(short):
    for rate, steps in ((1e10, 3), (1e300, 1)):  # also in the last step, of which no other follows
        with pytest.raises(FloatingPointError, match=r"loss is|weights have|probabilities") as end:
            short(learning_rate=rate, max_steps=steps)
        where = "".join([str(end.value), *getattr(end.value, "__notes__", [])])
        assert re.search("step [1-3]", where)


@pytest.mark.slow
@pytest.mark.fault("a learning rate that blows weights up", times=3)
def test_weights_of_sft_that_blow_up_end_the_run(toy_model, tmp_path):
    demonstration = Demonstration(id="a", prompt="a", message="a", completion="b")
    common = {"output_dir": str(tmp_path), "save_strategy": "no", "use_cpu": True, "bf16": False}
    for rate in (1e30, 1e35, 1e38):
        params = load(default_values()).sft.model_copy(update={"learning_rate": rate, "batch": 1})
        with pytest.raises(FloatingPointError, match=r"step [1-3]: weights have become"):
            sft_trainer(toy_model, [demonstration], params, common | {"report_to": []}).train()


@loops("a loss that is infinite or NaN", times=3)
def test_a_loss_that_is_no_number_ends_the_run(short):
    """Also where the gradient and the weights are finite."""
    for more in NOT_FINITE:

        class Off(RapidTrainer):
            def _compute_loss(self, model, inputs, more=more):
                return super()._compute_loss(model, inputs) + more

        with pytest.raises(FloatingPointError, match=rf"step 1: the loss is {more}"):
            short(trainer=Off)


@pytest.mark.fault("a reward of a benchmark's grader outside [0, 1]", times=20)
def test_a_verdict_is_from_0_to_1():
    for reward in [*NOT_FINITE, *(n / 7 for n in range(8, 16)), *(-n / 7 for n in range(1, 10))]:
        with pytest.raises(ValidationError):
            Verdict(reward=reward, reason="passed")


@pytest.mark.fault("weights that are NaN or infinite from the beginning", times=20)
def test_a_model_without_probabilities_is_not_sampled_from(toy_model, tmp_path):
    copytree(toy_model, tmp_path, dirs_exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(toy_model)
    named = [one for one in model.parameters() if one.ndim == 2]
    for number in range(20):
        spoilt = random.Random(number).choice(named)
        kept = spoilt.data.clone()
        spoilt.data[:] = (float("nan"), float("inf"))[number % 2]
        model.save_pretrained(tmp_path)
        with pytest.raises(FloatingPointError, match="probabilities are NaN"):
            sample("transformers", tmp_path, ["a", "bc"], **ASKED)
        spoilt.data = kept
    assert len(sample("transformers", toy_model, ["a", "bc"], **ASKED)) == 2


# Samples ------------------------------------------------------------------------------------------


def learn(model, dataset, reward=None, context: int | None = None, **others):
    """Two steps on these prompts, of 8 completions each."""
    torch.set_num_threads(1)
    loaded = AutoModelForCausalLM.from_pretrained(model)
    if context:
        loaded.config.max_position_embeddings = context
    sizes = {"n_step": 8, "H": 1, "micro_batch_size": 8, "max_completion_length": 4, "max_steps": 2}
    settings = COMMON | sizes | {k: others.pop(k) for k in {*others} & {*sizes, "num_generations"}}
    trainer = RapidTrainer(
        loaded,
        reward or always(1.0),
        RapidConfig("unused", **settings),
        Dataset.from_list([{"prompt": p} for p in dataset]) if type(dataset) is list else dataset,
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
        **others,
    )
    trainer.train()
    return trainer


@pytest.mark.slow
@pytest.mark.fault("a prompt longer than the model's context", times=20)
def test_a_prompt_that_leaves_no_room_is_refused(toy_model, tmp_path):
    copytree(toy_model, tmp_path, dirs_exist_ok=True)
    config = AutoConfig.from_pretrained(toy_model)
    config.max_position_embeddings = 8
    config.save_pretrained(tmp_path)
    for length in range(20):
        prompts = ["a" * 3, "b" * (8 + length)]
        with pytest.raises(ValueError, match=rf"'b*' has {8 + length} tokens, but .* 1 to 7"):
            learn(toy_model, prompts, context=8)
        with pytest.raises(ValueError, match="takes from 1 to 7"):
            sample("transformers", tmp_path, prompts, **ASKED)


@pytest.mark.slow
@pytest.mark.fault("a prompt without tokens", times=20)
def test_an_empty_prompt_is_refused(toy_model):
    for length in range(20):
        with pytest.raises(ValueError, match="the prompt '' has 0 tokens") as end:
            learn(toy_model, ["", "a" * length])
        assert "at step 1" in end.value.__notes__[-1]


CHARACTERS = ["\0", "a\0b", "\x1b[31m", "\r\n", "\t", "\x7f", "\u2028", "\u202eab", "\u200b"]
CHARACTERS += ["\ufeff", "日本語", "🙂", "👩‍💻", "e\u0301", "\ufdd0", "\U0010ffff", "<pad>"]
CHARACTERS += ["<eos>", "{x}", "%s $x$"]


@pytest.mark.slow
@pytest.mark.fault("odd characters in a prompt", times=len(CHARACTERS))
def test_a_prompt_may_have_any_character(toy_model):
    asked = set()

    def graded(prompts, completions, **_):
        asked.update(prompts)
        return [float(len(text) % 2) for text in completions]

    for text in CHARACTERS:
        trainer = learn(toy_model, [text, "a"], graded)
        assert weights(trainer).isfinite().all()
    assert asked == {*CHARACTERS, "a"}


@pytest.mark.slow
@pytest.mark.fault("half a surrogate pair in a prompt", times=20)
def test_half_a_surrogate_pair_is_refused(toy_model):
    for number in range(20):
        text = f"a{chr(0xD800 + 100 * number)}"
        dataset = [text, "a"] if number % 2 else stream([{"prompt": text}] * 4)
        with pytest.raises((UnicodeEncodeError, TypeError), match=r"surrogates|TextEncodeInput"):
            learn(toy_model, dataset)


@pytest.mark.slow
@pytest.mark.fault("a completion without tokens", times=4)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_completion_without_tokens_is_refused(toy_model, objective):
    for empty in (0, 3, 7, slice(None)):

        def rollout(prompts, trainer, empty=empty):
            completions = [[5, 6, 1] for _ in prompts]
            completions[empty] = [[]] * 8 if type(empty) is slice else []
            ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
            return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None}

        with pytest.raises(ValueError, match=r"of the prompt '[ab]' has no tokens"):
            learn(toy_model, ["a", "b"], rollout_func=rollout)


def stream(rows: list[dict]) -> IterableDataset:
    return IterableDataset.from_generator(lambda: iter(rows))


@pytest.mark.slow
@pytest.mark.fault("an empty dataset", times=10)
@pytest.mark.parametrize("generations", [2, 4])
def test_an_empty_dataset_is_refused(toy_model, generations):
    empty = [[], Dataset.from_dict({"prompt": []}), stream([]), None, Dataset.from_list([{}])]
    for dataset, n_step in itertools.product(empty, [4, 8]):
        sizes = {"num_generations": generations, "n_step": n_step, "micro_batch_size": 4}
        with pytest.raises((ValueError, KeyError), match=r"prompt|train_dataset"):
            learn(toy_model, dataset, **sizes)


@pytest.mark.fault("a group with one member", times=20)
def test_a_group_has_several_members():
    for n_step in range(1, 21):
        with pytest.raises(ValueError, match="at least 2 generations"):
            RapidConfig("unused", **COMMON | {"num_generations": 1, "n_step": n_step, "H": 1})


@pytest.mark.fault("a training setting that is no number", times=20)
def test_a_rate_and_a_temperature_are_numbers():
    names, values = ("learning_rate", "temperature"), (*NOT_FINITE, -1.0, -1e-9)
    for name, value, H in itertools.product(names, values, (1, 4)):
        with pytest.raises(ValueError, match=f"{name}={value}: set {name} >= .* finite"):
            RapidConfig("unused", **COMMON | {"H": H, name: value})


HANGS = """
import gc, os, sys, threading, torch
from tests.training.loops import build, run
torch.set_num_threads(1)
run(*sys.argv[1:3], "rapid", max_steps=1)  # imports what a run imports
out = int(sys.argv[3])
def hangs(completions, **_):
    os.write(out, b".")
    threading.Event().wait()
trainers = [build(*sys.argv[1:3], "rapid", hangs, grading_workers=workers) for workers in (0, 2)]
gc.freeze()  # a child's collections leave it alone
for trainer in 10 * trainers:
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        os.write(out, b"%d\\n" % status)
    else:
        os.write(out, b"%d " % os.getpid())
        trainer.train()
        os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.fault("a reward function that hangs", times=20)
def test_a_run_whose_reward_function_hangs_ends_when_it_is_told_to(toy_model, tmp_path):
    reader, writer = os.pipe()
    command = [sys.executable, "-c", HANGS, str(toy_model), str(tmp_path), str(writer)]
    started = subprocess.Popen(command, cwd=ROOT, pass_fds=[writer])
    os.close(writer)
    try:
        with open(reader) as said:
            for _ in range(20):
                child = ""
                while not child.endswith("."):  # it hangs
                    child += said.read(1) or pytest.fail("it has ended")
                os.kill(int(child.split()[0]), signal.SIGTERM)
                assert said.readline().strip(".\n") == str(int(signal.SIGTERM))
        assert started.wait() == 0
    finally:
        started.kill()
        started.wait()
