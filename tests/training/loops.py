"""Training loops on the toy model, plain and with each saving, in one and several processes."""

import random

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOTrainer

from rapid import RapidConfig, RapidTrainer
from tests.training.conformance.adapters import config_of

# Of all configurations, TRL's and ours.
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
    "optim": "sgd",  # Adam would blow rounding errors up where a gradient is zero
    "num_generations": 4,
}
# Nothing saved: all groups, passes of a fixed size padded to the inference batch, another forward
# pass for log mu.
PLAIN = {
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
ALL = {name: value for saving in SAVINGS.values() for name, value in saving.items()}
OBJECTIVES = {
    "rapid": {"objective": "rapid", "H": 4},
    "pg": {"objective": "pg", "H": 1},
    "grpo": {"objective": "grpo", "H": 2, "beta": 0.04},
    "dapo": {"objective": "dapo", "H": 2, "epsilon_high": 0.28},
    "trl": {"objective": "trl", "H": 2, "epsilon_high": 0.28},
}


def digits_sum(prompts, completions, **_):
    """A reward that an untrained byte model earns now and then; some groups all, some never."""
    return [
        float((sum(map(ord, text)) + len(prompt)) % 3 == 0)
        for prompt, text in zip(prompts, completions, strict=True)
    ]


def sometimes(prompts, completions, **_):
    """The same reward, which now and then is not known: of some prompts never."""
    return [
        None if (sum(map(ord, text)) + len(prompt)) % 7 == 0 or prompt.endswith("3") else reward
        for prompt, text, reward in zip(
            prompts, completions, digits_sum(prompts, completions), strict=True
        )
    ]


# The share of a step that float32 may change, in which TRL takes log-probabilities even of a float64
# model: of T tokens, each a sum over a hidden size and a vocabulary, every term of them rounded.
ROUNDING = 8 * (64 + 258) * 2.0**-24

REWARDS = {"digits_sum": digits_sum, "sometimes": sometimes}


class Scripted:
    """Sample what prompt, place in the group and step say: alike in any number of processes."""

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


class ScriptedGrpo(Scripted, GRPOTrainer):
    pass


class ScriptedTrainer(Scripted, RapidTrainer):
    def _generate_single_turn(self, *args):
        completions, logps = super()._generate_single_turn(*args)
        for row, ids in enumerate(completions):
            self._grade_early(row, ids)
        return completions, logps


class Recorded:
    """Keep the gradient and the loss of each step."""

    def training_step(self, *args):
        loss = super().training_step(*args)
        gradient = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        vars(self).setdefault("gradients", []).append(gradient)
        vars(self).setdefault("losses", []).append(loss.item())
        return loss


def make(kind, config, model, reward, prompts=32, dtype=torch.float64, **others):
    """A trainer, TRL's or ours, of the toy model on one thread."""
    torch.set_num_threads(1)
    texts = [f"{'long ' * (i % 4)}prompt {i}" for i in range(prompts)]
    return kind(
        AutoModelForCausalLM.from_pretrained(model, dtype=dtype),
        reward,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": text} for text in texts]),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
        **others,
    )


def build(
    model,
    folder,
    objective,
    reward="digits_sum",
    trainer=RapidTrainer,
    dtype=torch.float64,
    adapter=None,
    **settings,
) -> RapidTrainer:
    """A trainer for 8 optimizer steps of 16 completions.

    Its reward may be a name of REWARDS, its adapter a name of `adapters.KINDS`.
    """
    sizes = {"n_step": 16, "micro_batch_size": 8, "max_completion_length": 6, "max_steps": 8}
    own = OBJECTIVES.get(objective, {"objective": objective})
    settings = COMMON | sizes | {"learning_rate": 0.05} | own | settings
    reward = REWARDS[reward] if isinstance(reward, str) else reward
    others = {"peft_config": config_of(adapter, model)} if adapter else {}
    return make(trainer, RapidConfig(str(folder), **settings), model, reward, dtype=dtype, **others)


def run(*args, **settings) -> RapidTrainer:
    """A trainer after training. Built and trained at once: building it sets the seed."""
    trainer = build(*args, **settings)
    trainer.train()
    return trainer


def weights(trainer) -> torch.Tensor:
    model = trainer.accelerator.unwrap_model(trainer.model)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def untrained(model, dtype=torch.float64) -> torch.Tensor:
    """The weights that training starts from."""
    start = AutoModelForCausalLM.from_pretrained(model, dtype=dtype)
    return torch.cat([p.detach().flatten() for p in start.parameters()])


def log_pi(model, batch) -> torch.Tensor:
    """(N, T), from one forward pass of prompts and completions together."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(ids, attention_mask=mask, position_ids=positions).logits.double()
    width = batch["completion_ids"].size(1)
    logp = logits[:, -width - 1 : -1].log_softmax(-1)
    return logp.gather(2, batch["completion_ids"][..., None])[..., 0]


def descend(model, loss: torch.Tensor, rate: float) -> None:
    """Take a step of plain SGD."""
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= rate * parameter.grad


def assert_learned_alike(found, expected, start):
    """Weights differ by rounding only, beside what was learned from `start` in some 10 steps."""
    learned = (expected - start).norm()
    assert learned > 1e-3 * start.norm()
    stored = 10 * torch.finfo(expected.dtype).eps * expected.norm()
    assert (found - expected).norm() <= ROUNDING * learned + stored


def logged(trainer, name: str) -> list[float]:
    return [row[name] for row in trainer.state.log_history if name in row]
