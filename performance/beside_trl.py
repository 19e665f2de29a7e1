"""How near the gradient of stock TRL comes to RAPID's, in its nearest settings: `RECIPE`.

Both are taken of each mini-batch of an inference batch, in float64; then the policy takes RAPID's
step. So the first pair is on-policy, and each later one further from it.
"""

import torch
from torch import Tensor
from trl import GRPOTrainer

from performance.trainers import Setting
from rapid.algorithms import rapid_loss
from rapid.training.batches import Batch, split_mini_batches

ETA = 2.0  # the paper's, and that of params.yaml
# The rate is that of params.yaml; clipped gradients would have another norm on either side.
LEARNING = {"learning_rate": 1e-4, "max_grad_norm": 0.0}


class Float64(GRPOTrainer):
    """GRPOTrainer with log-probabilities in float64; TRL's are float32 even of a float64 model."""

    def _get_per_token_logps_and_entropies(self, model, ids, mask, keep, *_, **__):
        logp = model(input_ids=ids, attention_mask=mask).logits[:, -keep - 1 : -1].log_softmax(-1)
        entropy = -(logp.exp() * logp).sum(-1).detach()
        return logp.gather(2, ids[:, -keep:, None]).squeeze(2), entropy, None


def compare(trainer: Float64, setting: Setting) -> list[dict[str, float]]:
    """Return how far TRL's gradient is from RAPID's at each step on an inference batch.

    TRL divides by the mean length of completions; its loss is taken times that. `cosine` is
    between the two, `distance` a share of RAPID's norm. `kernel` is the distance from the weight
    itself to vespo's kernel of it, a share of TRL's norm.
    """
    model, group = trainer.model.double().train(), setting.group
    trainer.current_gradient_accumulation_steps = 1  # which training has not set yet
    rows = trainer.train_dataset.shuffle(trainer.args.seed).select(
        range(setting.inference_batch // group)
    )
    sampled = trainer._generate_and_score_completions([row for row in rows for _ in range(group)])
    tokens = sampled.pop("num_items_in_batch").double()
    sampled["rewards"] = torch.tensor(trainer.reward_funcs[0].verdicts, dtype=torch.float64)
    found = []
    for batch in split_mini_batches(sampled, setting.H):
        loss = trainer._compute_loss(model, batch | {"num_items_in_batch": tokens})
        trls = _gradient(model, loss * tokens / setting.inference_batch)
        loss, _ = _rapid(trainer, batch, batch["advantages"].double(), group, "none")
        weighted = _gradient(model, loss)
        loss, metrics = _rapid(trainer, batch, batch["rewards"], group, "group")
        ours = _gradient(model, loss)
        found.append({
            "cosine": (trls @ ours / (trls.norm() * ours.norm())).item(),
            "distance": ((trls - ours).norm() / ours.norm()).item(),
            "kernel": ((trls - weighted).norm() / trls.norm()).item(),
            **{name: value.item() for name, value in metrics.items()},
        })  # fmt: skip
        trainer.optimizer.step()  # by the gradient that was taken last
    return found


def _rapid(trainer: Float64, batch: Batch, rewards: Tensor, group: int, baseline: str):
    """Return RAPID's loss of a mini-batch, and its metrics."""
    ids, mask = (
        torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], 1)
        for name in ("ids", "mask")
    )
    mu, own = batch["old_per_token_logps"], batch["completion_mask"]
    logp, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, own.size(1))
    return rapid_loss(logp, mu, own, rewards, group, ETA, baseline=baseline)


def _gradient(model, loss: Tensor) -> Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
