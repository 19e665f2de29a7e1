"""Multi-turn completions: tokens of tools and environments are read but not learned."""

import random

import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer, LogitsProcessor, LogitsProcessorList

from rapid import RapidConfig, RapidTrainer
from rapid.algorithms import rapid_loss
from rapid.training import generation
from tests.training.conformance.families import build_untrained
from tests.training.loops import (
    COMMON,
    compute_logps,
    get_weights,
    prefill_second_half,
    take_sgd_step,
)

GROUP_SIZE, N_STEP, RATE = 4, 8, 0.5
CALL = '<tool_call>{"name": "double", "arguments": {"number": 3}}</tool_call>'
# The smallest chat template with which TRL accepts tools.
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + (m['content'] or '') }}"
    "{% for call in m['tool_calls'] or [] %}{{ '<tool_call>' + call.function | tojson "
    "+ '</tool_call>' }}{% endfor %}{{ '<eos>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
RESPONSE_TEMPLATE = {
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


def length_reward(completion_ids, **_):
    return [float(len(ids) % 3) for ids in completion_ids]


def build_trainer(toy_model, folder, prompts, **settings):
    defaults = COMMON | {"n_step": N_STEP, "learning_rate": RATE, "max_completion_length": 200}
    arguments = {name: settings.pop(name) for name in list(settings) if name in ARGUMENTS}
    model = build_untrained("Llama")
    model.config.max_position_embeddings = 2048
    tokenizer = AutoTokenizer.from_pretrained(toy_model, padding_side="left")
    tokenizer.chat_template, tokenizer.response_template = TEMPLATE, RESPONSE_TEMPLATE
    torch.set_num_threads(1)
    return RapidTrainer(
        model,
        arguments.pop("reward_funcs", length_reward),
        args=RapidConfig(str(folder), **defaults | settings),
        train_dataset=prompts,
        processing_class=tokenizer,
        **arguments,
    )


ARGUMENTS = ("tools", "rollout_func", "environment_factory", "reward_funcs")
TEXT_ROWS = Dataset.from_list([{"prompt": f"prompt {i}"} for i in range(8)])
CHAT_ROWS = Dataset.from_list(
    [{"prompt": [{"role": "user", "content": f"prompt {i}"}]} for i in range(8)]
)


def generate_rollouts(prompts, trainer):
    """Return completions with tokens of an environment, each with a prompt of its own."""
    rng, encode = random.Random(0), trainer.processing_class.encode
    ids = [[rng.randrange(2, 258) for _ in range(rng.randint(4, 9))] for _ in prompts]
    return {
        "prompt_ids": [encode(f"{prompt} {number}") for number, prompt in enumerate(prompts)],
        "completion_ids": ids,
        "logprobs": [[0.0] * len(completion) for completion in ids],
        "env_mask": [[1] * 2 + [0] * (len(completion) - 3) + [1] for completion in ids],
    }


def test_only_sampled_tokens_have_a_gradient(toy_model, tmp_path, monkeypatch):
    """Two steps of plain SGD by hand equal the trainer's; prompts differ within a group."""
    batches = []

    class BatchRecorder(RapidTrainer):
        def _sample_batch(self, inputs):
            batches.append(super()._sample_batch(inputs))
            return batches[-1]

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    trainer = build_trainer(
        toy_model, tmp_path, TEXT_ROWS, rollout_func=generate_rollouts, H=2, max_steps=2
    )
    trainer.__class__ = BatchRecorder
    trainer.train()
    (batch,) = batches
    batch["mask"] = batch["completion_mask"] * batch["tool_mask"]
    assert batch["mask"].sum(1).tolist() == [3] * 16
    model = build_untrained("Llama")
    start = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    behavior_logp = compute_logps(model, batch).detach()
    for rows in (slice(0, N_STEP), slice(N_STEP, 2 * N_STEP)):
        mini_batch = {name: value[rows] for name, value in batch.items()}
        loss, _ = rapid_loss(
            compute_logps(model, mini_batch),
            behavior_logp[rows],
            mini_batch["mask"],
            mini_batch["rewards"],
            GROUP_SIZE,
            2,
        )
        take_sgd_step(model, loss, RATE)
    expected = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert (expected - start).abs().max() > 1e-2
    torch.testing.assert_close(get_weights(trainer), expected, rtol=0, atol=2e-5)


def script_turns(tokenizer, turns):
    """Return a stand-in for `generate` that returns the texts of one turn after another."""

    def generate(input_ids, **_):
        texts = turns.pop(0) if len(input_ids) == N_STEP else ["done"] * len(input_ids)
        ids = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in texts]
        longest = max(map(len, ids))
        padded = [row_ids + [tokenizer.pad_token_id] * (longest - len(row_ids)) for row_ids in ids]
        return torch.cat([input_ids, torch.tensor(padded)], dim=1)

    return generate


@pytest.mark.parametrize(("objective", "workers"), [("rapid", 2), ("trl", 0)])
def test_tools_are_called_and_their_answers_masked_from_loss(
    toy_model, tmp_path, objective, workers
):
    graded_completions = []

    def reward(completions, **_):
        graded_completions.extend(completions)
        return [float(len(turns)) for turns in completions]

    settings = {"objective": objective, "H": 1, "max_steps": 1, "grading_workers": workers}
    trainer = build_trainer(
        toy_model, tmp_path, CHAT_ROWS, reward_funcs=reward, tools=[double], **settings
    )
    turns = [["no idea", CALL] * (N_STEP // 2)]
    trainer.model.generate = script_turns(trainer.processing_class, turns)
    start = get_weights(trainer)
    trainer.train()
    assert not turns and not torch.equal(get_weights(trainer), start)
    graded_completions.sort(key=len)  # workers grade in any order
    assert [len(turns) for turns in graded_completions] == sorted([1, 3] * (N_STEP // 2))
    assert graded_completions[-1][1] == {"role": "tool", "name": "double", "content": "6"}
    _, micro_batch, _ = trainer.last_pass
    loss_mask = (micro_batch["completion_mask"] * micro_batch["tool_mask"]).bool()
    learned_ids = [
        ids[mask] for ids, mask in zip(micro_batch["completion_ids"], loss_mask, strict=True)
    ]
    texts = trainer.processing_class.batch_decode(learned_ids)
    assert {*texts} == {"no idea<eos>", f"{CALL}<eos>done<eos>"}


def test_environments_give_rewards_and_are_graded_as_a_batch(toy_model, tmp_path, monkeypatch):
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

    settings = {"reward_funcs": None, "environment_factory": Counter, "H": 1, "max_steps": 1}
    with pytest.raises(ValueError, match="environments of a whole batch: set grading_workers=0"):
        build_trainer(toy_model, tmp_path, CHAT_ROWS, grading_workers=1, **settings)
    # The environment provides the prompts.
    trainer = build_trainer(toy_model, tmp_path, None, **settings)
    call = CALL.replace("double", "increment").replace("number", "step")
    trainer.model.generate = script_turns(trainer.processing_class, [["no", call] * (N_STEP // 2)])
    trainer.train()
    assert not trainer._shares_prompts
    assert trainer.last_pass[1]["rewards"].tolist() == [0, 3] * (N_STEP // 2)


class ForcedTokens(LogitsProcessor):
    """Leaves one token at each position of each row; the policy's logits stay as they are."""

    def __init__(self, ids: list[list[int]], prompt_width: int, end_id: int):
        self.ids, self.prompt_width, self.end_id = ids, prompt_width, end_id

    def __call__(self, input_ids, scores):
        position = input_ids.size(1) - self.prompt_width
        tokens = [row[position] if position < len(row) else self.end_id for row in self.ids]
        index = torch.tensor(tokens)[:, None]
        return torch.full_like(scores, -torch.inf).scatter(1, index, scores.gather(1, index))


def train_with_scripted_first_turns(toy_model, folder, monkeypatch, **settings):
    """Train one step, with real sampling. Every other completion calls a tool, the others are long.

    Every answer after a call is longer than what is left of the longest first turn.
    """
    settings = {"H": 1, "max_steps": 1, "max_completion_length": 140} | settings
    trainer = build_trainer(toy_model, folder, CHAT_ROWS, tools=[double], **settings)
    with torch.no_grad():
        trainer.model.lm_head.weight.mul_(30)  # log-probabilities far from each other
    tokenizer, generate, turns = trainer.processing_class, trainer.model.generate, []

    def generate_turn(input_ids, **arguments):
        processors = LogitsProcessorList()
        if not turns:
            ids = [tokenizer.encode(text) for text in [CALL, "a" * 130] * (N_STEP // 2)]
            end_id = tokenizer.eos_token_id
            processors.append(ForcedTokens(ids, input_ids.size(1), end_id))
        turns.append(len(input_ids))
        return generate(input_ids, logits_processor=processors, **arguments)

    monkeypatch.setattr(trainer.model, "generate", generate_turn)
    trainer.train()
    assert turns[:2] == [N_STEP, N_STEP // 2]
    return trainer


@pytest.mark.parametrize("settings", [{}, {"cache_implementation": "static"}], ids=str)
def test_later_turns_are_no_sampler_mismatch(toy_model, tmp_path, monkeypatch, settings):
    trainer = train_with_scripted_first_turns(toy_model, tmp_path, monkeypatch, **settings)
    assert trainer._sampler_check.is_exact


def test_wrong_sampler_of_first_turns_is_stopped(toy_model, tmp_path, monkeypatch):
    monkeypatch.setattr(generation, "prefill_prompts", prefill_second_half)
    with pytest.raises(RuntimeError, match="completions are not sampled from the policy"):
        train_with_scripted_first_turns(toy_model, tmp_path, monkeypatch)
