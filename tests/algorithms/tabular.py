"""A policy whose outcomes can be enumerated, so that expectations of losses are exact.

There are two prompts. A completion has two tokens, each one of three symbols, so that a prompt has
nine outcomes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rapid.algorithms import rapid_loss

PROMPTS, SYMBOLS = 2, 3
OUTCOMES = SYMBOLS**2
PARAMETERS = SYMBOLS + SYMBOLS**2  # per prompt: logits of the first and of the second token
STALENESS_LEVELS = {"on-policy": 0.0, "stale": 0.4, "very stale": 1.0}
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
        return compute_outcome_logps(self.mu).sum(-1).exp()

    @property
    def log_weight(self) -> Tensor:
        """log pi / mu of each outcome, (PROMPTS, OUTCOMES)."""
        return (compute_outcome_logps(self.pi) - compute_outcome_logps(self.mu)).sum(-1)

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


def compute_outcome_logps(logits: Tensor) -> Tensor:
    """Return the log-probability of each token of each outcome, (PROMPTS, OUTCOMES, 2)."""
    first = logits[:, :SYMBOLS].log_softmax(-1)
    second = logits[:, SYMBOLS:].view(PROMPTS, SYMBOLS, SYMBOLS).log_softmax(-1)
    return torch.stack([first.repeat_interleave(SYMBOLS, 1), second.flatten(1)], dim=-1)


def compute_true_gradient(problem: TabularProblem) -> Tensor:
    """Return the gradient of J = mean over prompts of E_pi[R], (PROMPTS, PARAMETERS)."""
    pi = problem.pi.clone().requires_grad_()
    value = (compute_outcome_logps(pi).sum(-1).exp() * problem.rewards).sum(1).mean()
    return torch.autograd.grad(value, pi)[0]


def compute_score_mean(problem: TabularProblem, values: Tensor) -> Tensor:
    """Return the mean over prompts of E_mu[values * grad log pi].

    Values have the shape (PROMPTS, OUTCOMES), or (PROMPTS, OUTCOMES, 2) for each token.
    """
    pi = problem.pi.clone().requires_grad_()
    if values.dim() == 2:
        values = values[..., None]
    total = (problem.probability * (values * compute_outcome_logps(pi)).sum(-1)).sum(1).mean()
    return torch.autograd.grad(total, pi)[0]


def compute_expected_gradient(
    problem: TabularProblem, group_size: int, loss=rapid_loss, **settings
) -> Tensor:
    """Return the expectation under mu of minus a loss's gradient, (PROMPTS, PARAMETERS)."""
    groups = torch.cartesian_prod(*[torch.arange(OUTCOMES)] * group_size)  # (groups, N_k)
    count = PROMPTS * len(groups)
    prompts = torch.arange(PROMPTS).repeat_interleave(len(groups) * group_size)
    outcomes = groups.flatten().repeat(PROMPTS)
    probability = problem.probability[prompts, outcomes].view(count, group_size).prod(1) / PROMPTS
    # A loss gives each group the weight 1 / count. This factor makes it the group's probability.
    probability_ratio = (probability * count).repeat_interleave(group_size)
    pi = problem.pi.clone().requires_grad_()
    logp = compute_outcome_logps(pi)[prompts, outcomes]
    behavior_logp = compute_outcome_logps(problem.mu)[prompts, outcomes]
    rewards = problem.rewards[prompts, outcomes]
    mask = torch.ones_like(behavior_logp)
    value, _ = loss(logp, behavior_logp, mask, rewards, group_size, **settings)
    (token_gradient,) = torch.autograd.grad(value, logp, retain_graph=True)
    return torch.autograd.grad(logp, pi, -token_gradient * probability_ratio[:, None])[0]


def assert_same_gradient(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
