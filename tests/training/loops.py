"""Builds and trains trainers of the toy model, with and without settings that save time."""

import random

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOTrainer

from rapid import RapidConfig, RapidTrainer
from rapid.training.caches import prefill_prompts
from tests.training.conformance.adapters import build_adapter_config

# Settings of every configuration, TRL's and RAPID's.
COMMON = {
    "seed": 0,
    "use_cpu": True,
    "bf16": False,
    "report_to": [],
    "save_strategy": "no",
    "gradient_checkpointing": False,
    "disable_tqdm": True,
    "logging_steps": 1,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 0.0,
    "optim": "sgd",  # Adam would amplify rounding errors where a gradient is zero
    "num_generations": 4,
}
# Settings that save no computation: all groups are run, micro-batches have a fixed size and are as
# wide as the inference batch, and an extra forward pass computes log mu.
NO_SAVINGS = {
    "skip_zero_groups": False,
    "pack": False,
    "reuse_logp": False,
    "share_prefill": False,
    "grading_workers": 0,
}
SAVINGS = {
    "skip_zero_groups": {"skip_zero_groups": True},
    "pack": {"pack": True, "token_budget": 150},
    "reuse_logp": {"reuse_logp": True},
    "share_prefill": {"share_prefill": True},
    "grading_workers": {"grading_workers": 2},
}
ALL_SAVINGS = {name: value for saving in SAVINGS.values() for name, value in saving.items()}
OBJECTIVES = {
    "rapid": {"objective": "rapid", "H": 4},
    "pg": {"objective": "pg", "H": 1},
    "grpo": {"objective": "grpo", "H": 2, "beta": 0.04},
    "dapo": {"objective": "dapo", "H": 2, "epsilon_high": 0.28},
    "trl": {"objective": "trl", "H": 2, "epsilon_high": 0.28},
}


def text_sum_reward(prompts, completions, **_):
    """Reward about a third of an untrained byte model's completions; in some groups all or none."""
    return [
        float((sum(map(ord, text)) + len(prompt)) % 3 == 0)
        for prompt, text in zip(prompts, completions, strict=True)
    ]


def partial_reward(prompts, completions, **_):
    """Return text_sum_reward, but None for some completions and for all of some prompts."""
    return [
        None if (sum(map(ord, text)) + len(prompt)) % 7 == 0 or prompt.endswith("3") else reward
        for prompt, text, reward in zip(
            prompts, completions, text_sum_reward(prompts, completions), strict=True
        )
    ]


# Relative error of a step due to float32, in which TRL computes log-probabilities even of a float64
# model. A token's is a sum over the hidden size and the vocabulary, and each term is rounded.
ROUNDING = 8 * (64 + 258) * 2.0**-24


def solved_reward(prompts, completions, **_):
    """Reward all completions of every fourth prompt, and about half of the others."""
    return [
        float(int(prompt.split()[-1]) % 4 == 0 or sum(map(ord, text)) % 2)
        for prompt, text in zip(prompts, completions, strict=True)
    ]


REWARDS = {f.__name__: f for f in (text_sum_reward, partial_reward, solved_reward)}


class ScriptedSampling:
    """Samples tokens that depend only on the prompt, the place in the group and the step."""

    equal_lengths = False

    def _generate_single_turn(self, prompt_ids, *_, **__):
        completions, logps = [], []
        first = self.accelerator.process_index * len(prompt_ids)
        for row, ids in enumerate(map(tuple, prompt_ids), first):
            place = row % self.num_generations
            rng = random.Random(repr((ids, place, self.state.global_step)))
            length = 4 if self.equal_lengths else rng.randint(1, 8)
            completions.append([rng.randrange(2, 258) for _ in range(length)])
            logps.append([rng.uniform(-5.6, -5.5) for _ in range(length)])
        return completions, logps if self.use_vllm else None


class ScriptedGrpoTrainer(ScriptedSampling, GRPOTrainer):
    pass


class ScriptedTrainer(ScriptedSampling, RapidTrainer):
    def _generate_single_turn(self, *args):
        completions, logps = super()._generate_single_turn(*args)
        for row, ids in enumerate(completions):
            self._grade_early(row, ids)
        return completions, logps


class GradientRecorder:
    """Records the gradient and the loss of each step."""

    def training_step(self, *args):
        loss = super().training_step(*args)
        gradient = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        vars(self).setdefault("gradients", []).append(gradient)
        vars(self).setdefault("losses", []).append(loss.item())
        return loss


class RecordingTrainer(GradientRecorder, ScriptedTrainer):
    """Records gradients of completions that do not depend on the policy."""


def make_trainer(
    trainer_class, config, model, reward, prompts=32, dtype=torch.float64, **arguments
):
    """Return a trainer, TRL's or RAPID's, of the toy model on one thread."""
    torch.set_num_threads(1)
    texts = [f"{'long ' * (i % 4)}prompt {i}" for i in range(prompts)]
    return trainer_class(
        AutoModelForCausalLM.from_pretrained(model, dtype=dtype),
        reward,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": text} for text in texts]),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
        **arguments,
    )


def build_rapid_trainer(
    model,
    folder,
    objective,
    reward="text_sum_reward",
    trainer_class=RapidTrainer,
    dtype=torch.float64,
    adapter=None,
    **settings,
) -> RapidTrainer:
    """Return a trainer for 8 optimizer steps of 16 completions.

    Its reward may be a name of REWARDS, its adapter a name of `adapters.KINDS`.
    """
    sizes = {"n_step": 16, "micro_batch_size": 8, "max_completion_length": 6, "max_steps": 8}
    objective_settings = OBJECTIVES.get(objective, {"objective": objective})
    settings = COMMON | sizes | {"learning_rate": 0.05} | objective_settings | settings
    reward = REWARDS[reward] if isinstance(reward, str) else reward
    arguments = {"peft_config": build_adapter_config(adapter, model)} if adapter else {}
    config = RapidConfig(str(folder), **settings)
    return make_trainer(trainer_class, config, model, reward, dtype=dtype, **arguments)


def train_rapid(*args, **settings) -> RapidTrainer:
    """Build a trainer, which sets the seed, train it at once and return it."""
    trainer = build_rapid_trainer(*args, **settings)
    trainer.train()
    return trainer


def get_weights(trainer) -> torch.Tensor:
    model = trainer.accelerator.unwrap_model(trainer.model)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def get_initial_weights(model, dtype=torch.float64) -> torch.Tensor:
    """Return the weights that training starts from."""
    start = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
    return torch.cat([p.detach().flatten() for p in start.parameters()])


def compute_logps(model, batch) -> torch.Tensor:
    """Return the log-probabilities of completions, (N, T), from one plain forward pass."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(ids, attention_mask=mask, position_ids=positions).logits.double()
    width = batch["completion_ids"].size(1)
    logp = logits[:, -width - 1 : -1].log_softmax(-1)
    return logp.gather(2, batch["completion_ids"][..., None])[..., 0]


def prefill_second_half(model, ids, mask, cache):
    """Prefill prompts without the first half of each: a sampler that is not the policy."""
    mask = mask.clone()
    mask[:, : ids.size(1) // 2] = 0
    return prefill_prompts(model, ids, mask, cache)


def take_sgd_step(model, loss: torch.Tensor, rate: float) -> None:
    """Take a step of plain SGD."""
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= rate * parameter.grad


def assert_same_learning(weights, expected, start):
    """Assert that weights differ by rounding only, relative to the change of about 10 steps."""
    change = (expected - start).norm()
    assert change > 1e-3 * start.norm()
    storage_error = 10 * torch.finfo(expected.dtype).eps * expected.norm()
    assert (weights - expected).norm() <= ROUNDING * change + storage_error


def assert_same_training(trainer, reference, model):
    """Assert that two trainers learned the same from the model that both started from."""
    weights, expected = get_weights(trainer), get_weights(reference)
    assert_same_learning(weights, expected, get_initial_weights(model, expected.dtype))


def logged_values(trainer, name: str) -> list[float]:
    return [row[name] for row in trainer.state.log_history if name in row]
