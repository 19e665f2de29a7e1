"""Completions of several turns: what a tool or an environment says is read, and not learned from."""

import random

import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer

from rapid import RapidConfig, RapidTrainer
from rapid.algorithms import rapid_loss
from tests.training.conformance.families import untrained
from tests.training.loops import COMMON, descend, log_pi, weights

GROUP, N_STEP, RATE = 4, 8, 0.5
CALL = '<tool_call>{"name": "double", "arguments": {"number": 3}}</tool_call>'
# As little of a chat template as TRL takes tools with.
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + (m['content'] or '') }}"
    "{% for call in m['tool_calls'] or [] %}{{ '<tool_call>' + call.function | tojson "
    "+ '</tool_call>' }}{% endfor %}{{ '<eos>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": "<eos>", "content": "text"},
    },
}


def double(number: int) -> int:
    """
    Double a number.

    Args:
        number: the number.

    Returns:
        Twice the number.
    """
    return 2 * number


def lengths(completion_ids, **_):
    return [float(len(ids) % 3) for ids in completion_ids]


def make(toy_model, folder, prompts, **given):
    settings = COMMON | {"n_step": N_STEP, "learning_rate": RATE, "max_completion_length": 200}
    arguments = {name: given.pop(name) for name in list(given) if name in ARGUMENTS}
    model = untrained("Llama")
    model.config.max_position_embeddings = 2048
    tokenizer = AutoTokenizer.from_pretrained(toy_model, padding_side="left")
    tokenizer.chat_template, tokenizer.response_template = TEMPLATE, RESPONSE
    torch.set_num_threads(1)
    return RapidTrainer(
        model,
        arguments.pop("reward_funcs", lengths),
        args=RapidConfig(str(folder), **settings | given),
        train_dataset=prompts,
        processing_class=tokenizer,
        **arguments,
    )


ARGUMENTS = ("tools", "rollout_func", "environment_factory", "reward_funcs")
TEXTS = Dataset.from_list([{"prompt": f"prompt {i}"} for i in range(8)])
CHATS = Dataset.from_list(
    [{"prompt": [{"role": "user", "content": f"prompt {i}"}]} for i in range(8)]
)


def rollouts(prompts, trainer):
    """Completions of which some tokens are the environment's, and prompts of each one's own."""
    rng, encode = random.Random(0), trainer.processing_class.encode
    ids = [[rng.randrange(2, 258) for _ in range(rng.randint(4, 9))] for _ in prompts]
    return {
        "prompt_ids": [encode(f"{prompt} {n}") for n, prompt in enumerate(prompts)],
        "completion_ids": ids,
        "logprobs": [[0.0] * len(one) for one in ids],
        "env_mask": [[1] * 2 + [0] * (len(one) - 3) + [1] for one in ids],
    }


def test_only_what_the_policy_sampled_counts(toy_model, tmp_path, monkeypatch):
    """Of prompts that differ within a group; two steps of plain SGD by hand are the trainer's."""
    sampled = []

    class Watched(RapidTrainer):
        def _sample(self, inputs):
            sampled.append(super()._sample(inputs))
            return sampled[-1]

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    trainer = make(toy_model, tmp_path, TEXTS, rollout_func=rollouts, H=2, max_steps=2)
    trainer.__class__ = Watched
    trainer.train()
    (batch,) = sampled
    batch["mask"] = batch["completion_mask"] * batch["tool_mask"]
    assert batch["mask"].sum(1).tolist() == [3] * 16
    model = untrained("Llama")
    start = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    mu = log_pi(model, batch).detach()
    for rows in (slice(0, N_STEP), slice(N_STEP, 2 * N_STEP)):
        part = {name: value[rows] for name, value in batch.items()}
        loss, _ = rapid_loss(log_pi(model, part), mu[rows], part["mask"], part["rewards"], GROUP, 2)
        descend(model, loss, RATE)
    expected = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert (expected - start).abs().max() > 1e-2
    torch.testing.assert_close(weights(trainer), expected, rtol=0, atol=2e-5)


def says(tokenizer, turns):
    """Stand in for `generate`: say, in turn, what a list of texts says of its rows."""

    def generate(input_ids, **_):
        texts = turns.pop(0) if len(input_ids) == N_STEP else ["done"] * len(input_ids)
        ids = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in texts]
        longest = max(map(len, ids))
        padded = [one + [tokenizer.pad_token_id] * (longest - len(one)) for one in ids]
        return torch.cat([input_ids, torch.tensor(padded)], dim=1)

    return generate


@pytest.mark.parametrize(("objective", "workers"), [("rapid", 2), ("trl", 0)])
def test_tools_are_called_and_their_answers_masked(toy_model, tmp_path, objective, workers):
    graded = []

    def reward(completions, **_):
        graded.extend(completions)
        return [float(len(turns)) for turns in completions]

    settings = {"objective": objective, "H": 1, "max_steps": 1, "grading_workers": workers}
    trainer = make(toy_model, tmp_path, CHATS, reward_funcs=reward, tools=[double], **settings)
    turns = [["no idea", CALL] * (N_STEP // 2)]
    trainer.model.generate = says(trainer.processing_class, turns)
    before = weights(trainer)
    trainer.train()
    assert not turns and not torch.equal(weights(trainer), before)
    assert [len(one) for one in graded] == [1, 3] * (N_STEP // 2)
    assert graded[1][1] == {"role": "tool", "name": "double", "content": "6"}
    _, micro_batch, _ = trainer.last_pass
    learned = (micro_batch["completion_mask"] * micro_batch["tool_mask"]).bool()
    said = [ids[mask] for ids, mask in zip(micro_batch["completion_ids"], learned, strict=True)]
    said = trainer.processing_class.batch_decode(said)
    assert {*said} == {"no idea<eos>", f"{CALL}<eos>done<eos>"}


def test_environments_have_their_rewards_and_are_graded_together(toy_model, tmp_path, monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")

    class Counter:
        def reset(self, **_) -> str:
            self.count = 0
            return " Count."

        def increment(self, step: int) -> int:
            """
            Count on.

            Args:
                step: how far.

            Returns:
                The count.
            """
            self.count += step
            return self.count

        def get_reward(self) -> float:
            return float(self.count)

    given = {"reward_funcs": None, "environment_factory": Counter, "H": 1, "max_steps": 1}
    with pytest.raises(ValueError, match="environments of a whole batch: set grading_workers=0"):
        make(toy_model, tmp_path, CHATS, grading_workers=1, **given)
    trainer = make(toy_model, tmp_path, None, **given)  # prompts are the environment's
    call = CALL.replace("double", "increment").replace("number", "step")
    trainer.model.generate = says(trainer.processing_class, [["no", call] * (N_STEP // 2)])
    trainer.train()
    assert not trainer.same_prompts
    assert trainer.last_pass[1]["rewards"].tolist() == [0, 3] * (N_STEP // 2)
