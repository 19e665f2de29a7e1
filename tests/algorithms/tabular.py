"""A policy small enough to enumerate, so that the mean of `rapid_loss`'s estimator is exact.

There are two prompts, and completions of two tokens from an alphabet of three: nine outcomes each.

    python -m tests.algorithms.tabular      prints the bias of each estimator
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rapid.algorithms import rapid_loss

PROMPTS, SYMBOLS = 2, 3
OUTCOMES = SYMBOLS**2
PARAMETERS = SYMBOLS + SYMBOLS**2  # per prompt: logits of the first token, and of the second
DEGREES = {"on-policy": 0.0, "stale": 0.4, "very stale": 1.0}
ETAS = (1.0, 1.5, 2.0, 4.0)


@dataclass(frozen=True)
class TabularProblem:
    """The policy pi, the behaviour policy mu, and a reward for each outcome."""

    pi: Tensor  # (PROMPTS, PARAMETERS) logits
    mu: Tensor
    rewards: Tensor  # (PROMPTS, OUTCOMES) in [0, 1]

    @property
    def probability(self) -> Tensor:
        """Probability of each outcome under mu, (PROMPTS, OUTCOMES)."""
        return outcome_logp(self.mu).sum(-1).exp()

    @property
    def log_weight(self) -> Tensor:
        """log pi / mu of each outcome, (PROMPTS, OUTCOMES)."""
        return (outcome_logp(self.pi) - outcome_logp(self.mu)).sum(-1)

    @property
    def weight(self) -> Tensor:
        return self.log_weight.exp()


def build_problem(staleness: float, seed: int = 0) -> TabularProblem:
    """Return random rewards and logits of pi; mu's logits are pi's plus `staleness` times noise."""
    generator = torch.Generator().manual_seed(seed)
    pi, noise = torch.randn(
        2, PROMPTS, PARAMETERS, generator=generator, dtype=torch.float64
    ).unbind()
    rewards = torch.rand(PROMPTS, OUTCOMES, generator=generator, dtype=torch.float64)
    return TabularProblem(pi, pi + staleness * noise, rewards)


def outcome_logp(logits: Tensor) -> Tensor:
    """Return the log-probability of each token of each outcome, (PROMPTS, OUTCOMES, 2)."""
    first = logits[:, :SYMBOLS].log_softmax(-1)
    second = logits[:, SYMBOLS:].view(PROMPTS, SYMBOLS, SYMBOLS).log_softmax(-1)
    return torch.stack([first.repeat_interleave(SYMBOLS, 1), second.flatten(1)], dim=-1)


def true_gradient(problem: TabularProblem) -> Tensor:
    """Return the gradient of J = mean over prompts of E_pi[R], (PROMPTS, PARAMETERS)."""
    pi = problem.pi.clone().requires_grad_()
    value = (outcome_logp(pi).sum(-1).exp() * problem.rewards).sum(1).mean()
    return torch.autograd.grad(value, pi)[0]


def score_mean(problem: TabularProblem, values: Tensor) -> Tensor:
    """Return the mean over prompts of E_mu[values * grad log pi].

    Values have the shape (PROMPTS, OUTCOMES), or (PROMPTS, OUTCOMES, 2) for each token.
    """
    pi = problem.pi.clone().requires_grad_()
    if values.dim() == 2:
        values = values[..., None]
    total = (problem.probability * (values * outcome_logp(pi)).sum(-1)).sum(1).mean()
    return torch.autograd.grad(total, pi)[0]


def expected_gradient(
    problem: TabularProblem, group_size: int, loss=rapid_loss, **settings
) -> Tensor:
    """Return the mean of a loss's estimate over all groups from mu, (PROMPTS, PARAMETERS)."""
    groups = torch.cartesian_prod(*[torch.arange(OUTCOMES)] * group_size)  # (groups, N_k)
    count = PROMPTS * len(groups)
    prompts = torch.arange(PROMPTS).repeat_interleave(len(groups) * group_size)
    outcomes = groups.flatten().repeat(PROMPTS)
    probability = problem.probability[prompts, outcomes].view(count, group_size).prod(1) / PROMPTS
    # A loss weights each group by 1 / count; this replaces that weight by the group's probability.
    probability_ratio = (probability * count).repeat_interleave(group_size)
    pi = problem.pi.clone().requires_grad_()
    logp = outcome_logp(pi)[prompts, outcomes]
    behavior_logp = outcome_logp(problem.mu)[prompts, outcomes]
    rewards = problem.rewards[prompts, outcomes]
    mask = torch.ones_like(behavior_logp)
    value, _ = loss(logp, behavior_logp, mask, rewards, group_size, **settings)
    (token_gradient,) = torch.autograd.grad(value, logp, retain_graph=True)
    return torch.autograd.grad(logp, pi, -token_gradient * probability_ratio[:, None])[0]


def assert_same_gradient(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def compute_bias(problem: TabularProblem, group_size: int, **settings) -> tuple[float, float]:
    """Return |mean estimate - true gradient| / |true gradient|, and the cosine between them."""
    gradient = true_gradient(problem).flatten()
    mean = expected_gradient(problem, group_size, **settings).flatten()
    return (
        ((mean - gradient).norm() / gradient.norm()).item(),
        torch.cosine_similarity(mean, gradient, dim=0).item(),
    )


def list_settings() -> Iterator[dict]:
    """Yield settings without clipping, then with both ways of clipping at each eta."""
    yield {"eta": math.inf, "clip": "both"}
    for clip in ("advantage", "both"):
        for eta in ETAS:
            yield {"eta": eta, "clip": clip}


def render_table() -> str:
    """Return a table of relative biases and cosines of the plain and leave-one-out estimates."""
    lines = []
    for name, staleness in DEGREES.items():
        problem = build_problem(staleness)
        mean_log_weight = (problem.probability * problem.log_weight.abs()).sum(1).mean()
        lines.append(
            f"{name}: E|log w| = {mean_log_weight:.2f}, largest w = {problem.weight.max():.2f}"
        )
        lines.append(f"{'':>25}{'plain':>16}{'leave-one-out':>18}")
        lines.append(f"{'N_k':>5}  {'clip':9}{'eta':>5}" + "".join(f"{'bias':>12}{'cos':>7}" * 2))
        for group_size in (2, 3):
            for setting in list_settings():
                plain = compute_bias(problem, group_size, **setting)
                leave_one_out = compute_bias(problem, group_size, **setting, baseline="others")
                clip = "none" if math.isinf(setting["eta"]) else setting["clip"]
                lines.append(
                    f"{group_size:5}  {clip:9}{setting['eta']:5}"
                    + "".join(
                        f"{bias:12.4f}{cosine:7.3f}" for bias, cosine in (plain, leave_one_out)
                    )
                )
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(render_table())
