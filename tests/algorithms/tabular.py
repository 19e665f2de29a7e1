"""A policy small enough to enumerate: the exact mean of an estimator, by `rapid_loss` itself.

Two prompts; completions are two tokens of an alphabet of three, autoregressive: nine outcomes each.

    python -m tests.algorithms.tabular      the bias of each estimator
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rapid.algorithms import rapid_loss

PROMPTS, SYMBOLS = 2, 3
OUTCOMES = SYMBOLS**2
PARAMETERS = SYMBOLS + SYMBOLS**2  # of each prompt: logits of the first token, and of the second
DEGREES = {"on-policy": 0.0, "stale": 0.4, "very stale": 1.0}
ETAS = (1.0, 1.5, 2.0, 4.0)


@dataclass(frozen=True)
class TabularProblem:
    """Prompts, a policy pi, the policy mu that samples, and a reward for each outcome."""

    pi: Tensor  # (PROMPTS, PARAMETERS) logits
    mu: Tensor
    rewards: Tensor  # (PROMPTS, OUTCOMES) in [0, 1]

    @property
    def probability(self) -> Tensor:
        """mu of each outcome, (PROMPTS, OUTCOMES)."""
        return outcome_logp(self.mu).sum(-1).exp()

    @property
    def log_weight(self) -> Tensor:
        """log pi / mu of each outcome, (PROMPTS, OUTCOMES)."""
        return (outcome_logp(self.pi) - outcome_logp(self.mu)).sum(-1)

    @property
    def weight(self) -> Tensor:
        return self.log_weight.exp()


def build_problem(staleness: float, seed: int = 0) -> TabularProblem:
    """Logits of pi and rewards are random; mu's logits are pi's plus `staleness` times noise."""
    generator = torch.Generator().manual_seed(seed)
    pi, noise = torch.randn(
        2, PROMPTS, PARAMETERS, generator=generator, dtype=torch.float64
    ).unbind()
    rewards = torch.rand(PROMPTS, OUTCOMES, generator=generator, dtype=torch.float64)
    return TabularProblem(pi, pi + staleness * noise, rewards)


def outcome_logp(logits: Tensor) -> Tensor:
    """log-probability of each token of each outcome, (PROMPTS, OUTCOMES, 2)."""
    first = logits[:, :SYMBOLS].log_softmax(-1)
    second = logits[:, SYMBOLS:].view(PROMPTS, SYMBOLS, SYMBOLS).log_softmax(-1)
    return torch.stack([first.repeat_interleave(SYMBOLS, 1), second.flatten(1)], dim=-1)


def true_gradient(p: TabularProblem) -> Tensor:
    """grad of J = mean over prompts of E_pi[R], (PROMPTS, PARAMETERS)."""
    pi = p.pi.clone().requires_grad_()
    value = (outcome_logp(pi).sum(-1).exp() * p.rewards).sum(1).mean()
    return torch.autograd.grad(value, pi)[0]


def score_mean(p: TabularProblem, values: Tensor) -> Tensor:
    """Mean over prompts of E_mu[values * grad log pi].

    Values are (PROMPTS, OUTCOMES), or (PROMPTS, OUTCOMES, 2) of each token.
    """
    pi = p.pi.clone().requires_grad_()
    if values.dim() == 2:
        values = values[..., None]
    total = (p.probability * (values * outcome_logp(pi)).sum(-1)).sum(1).mean()
    return torch.autograd.grad(total, pi)[0]


def expected_gradient(p: TabularProblem, group_size: int, loss=rapid_loss, **settings) -> Tensor:
    """The mean of a loss's estimate over all groups of mu, (PROMPTS, PARAMETERS)."""
    groups = torch.cartesian_prod(*[torch.arange(OUTCOMES)] * group_size)  # (groups, N_k)
    count = PROMPTS * len(groups)
    prompts = torch.arange(PROMPTS).repeat_interleave(len(groups) * group_size)
    outcomes = groups.flatten().repeat(PROMPTS)
    chance = p.probability[prompts, outcomes].view(count, group_size).prod(1) / PROMPTS
    # A loss gives each group a share of 1 / count: its probability takes that share's place.
    share = (chance * count).repeat_interleave(group_size)
    pi = p.pi.clone().requires_grad_()
    logp = outcome_logp(pi)[prompts, outcomes]
    behavior_logp, rewards = outcome_logp(p.mu)[prompts, outcomes], p.rewards[prompts, outcomes]
    mask = torch.ones_like(behavior_logp)
    value, _ = loss(logp, behavior_logp, mask, rewards, group_size, **settings)
    (rows,) = torch.autograd.grad(value, logp, retain_graph=True)
    return torch.autograd.grad(logp, pi, -rows * share[:, None])[0]


def compute_bias(p: TabularProblem, group_size: int, **settings) -> tuple[float, float]:
    """(|mean estimate - true gradient| / |true gradient|, cosine of the angle between them)."""
    true, mean = true_gradient(p).flatten(), expected_gradient(p, group_size, **settings).flatten()
    return (
        ((mean - true).norm() / true.norm()).item(),
        torch.cosine_similarity(mean, true, dim=0).item(),
    )


def list_settings() -> Iterator[dict]:
    """Unclipped, then either way to clip at each eta."""
    yield {"eta": math.inf, "clip": "both"}
    for clip in ("advantage", "both"):
        for eta in ETAS:
            yield {"eta": eta, "clip": clip}


def render_table() -> str:
    """Relative bias and cosine to the true gradient, of the plain and leave-one-out estimates."""
    lines = []
    for name, staleness in DEGREES.items():
        p = build_problem(staleness)
        stale = (p.probability * p.log_weight.abs()).sum(1).mean()
        lines.append(f"{name}: E|log w| = {stale:.2f}, largest w = {p.weight.max():.2f}")
        lines.append(f"{'':>25}{'plain':>16}{'leave-one-out':>18}")
        lines.append(f"{'N_k':>5}  {'clip':9}{'eta':>5}" + "".join(f"{'bias':>12}{'cos':>7}" * 2))
        for group_size in (2, 3):
            for setting in list_settings():
                plain = compute_bias(p, group_size, **setting)
                without = compute_bias(p, group_size, **setting, baseline="others")
                clip = "none" if math.isinf(setting["eta"]) else setting["clip"]
                lines.append(
                    f"{group_size:5}  {clip:9}{setting['eta']:5}"
                    + "".join(f"{size:12.4f}{cosine:7.3f}" for size, cosine in (plain, without))
                )
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(render_table())
