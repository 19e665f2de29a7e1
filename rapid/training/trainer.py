"""RapidTrainer: Algorithm 1 of the paper, and its baselines, as `RapidTrainer.training_step`.

Where it departs from the paper and from TRL's GRPOTrainer:
1. The H mini-batches are the inference batch in order, each group used once. Algorithm 1 draws
   single completions; prompts are in random order already.
2. Groups stay whole, in a mini-batch and in each chunk of it: the importance-weighted baseline is
   a mean over a group. TRL shuffles single completions.
3. The loss is one of the pure functions of `rapid.algorithms`, from raw rewards, without TRL's
   advantages. With objective "trl" it is GRPOTrainer's own, in this loop.
4. An optimizer step makes its own forward and backward passes: as many as there is something to
   learn from, none of them wider than its longest completion. TRL makes a fixed number.
5. Processes see the whole inference batch and divide what is to be run. TRL's keep to their own.
6. Two baselines need more than the paper's loop: groups without signal are resampled (DAPO), and
   sampling goes in smaller batches (naive GRPO).

`rapid.training.trl` has what TRL needs to be bent for this.
"""

import math
import time
from dataclasses import astuple
from itertools import islice
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.grpo_trainer import RewardFunc
from typing_extensions import override

from rapid.algorithms import RAPID
from rapid.algorithms.base import LossInputs
from rapid.algorithms.groups import active_groups
from rapid.algorithms.means import token_mean
from rapid.training import batches
from rapid.training.batches import Batch
from rapid.training.config import RapidConfig
from rapid.training.gradient_trainer import GradientTrainer
from rapid.training.metrics import compute_mini_batch_metrics, to_trl_metrics
from rapid.training.micro_batches import MicroBatchLimit, select_local
from rapid.training.processes import gather_batch

PAPER = {
    "title": "RAPID: An Efficient Reinforcement Learning Algorithm for Small Language Models",
    "citation": """@misc{rapid,
    title  = {{RAPID: An Efficient Reinforcement Learning Algorithm for Small Language Models}},
    author = {Lianghuan Huang and Sagnik Anupam and Insup Lee and Shuo Li and Osbert Bastani},
}""",
}


class RapidTrainer(GradientTrainer):
    """Train a policy with RAPID. Arguments are those of `GRPOTrainer`, with a `RapidConfig`.

    A `GRPOConfig` does as well: its batch sizes say what n_step and H are, see `RapidConfig`.

    The reward of a completion is the weighted sum of the reward functions. A completion for which
    all of them return None was not graded: its whole group takes no part in gradient and metrics,
    and the others count as if it contributed 0.
    Policies are text models. A completion may be of several turns, with tools or an environment:
    what these say is read by the policy, and no part of what it learns from.

    `last_pass` is what ran last: the optimizer step, the micro-batch, and its log pi, (N, T),
    without gradient. After `train`, `clock.seconds` has the wall-clock seconds by phase: sampling
    (from prompts to completions, as texts), grading, sync (of weights to vLLM), backpropagation
    (making micro-batches, forward passes outside sampling, backward, the optimizer's step) and
    other.

    Raises:
        ValueError: something that this trainer does not do was asked for.
    """

    _tag_names = ["trl", "rapid"]  # noqa: RUF012 - as TRL has it
    _name = "RAPID"
    _paper = PAPER

    def __init__(
        self,
        model: str | torch.nn.Module,
        reward_funcs: RewardFunc | list[RewardFunc] | None = None,
        args: GRPOConfig | None = None,
        *arguments: Any,
        **named: Any,
    ) -> None:
        super().__init__(model, reward_funcs, RapidConfig.of(args), *arguments, **named)
        self._refuse_too_few_prompts()
        if self.args.algorithm is not RAPID:  # for the model card
            self._name = self.args.algorithm.label
            self._paper = GRPOTrainer._paper if self.args.uses_trl_loss else {}
        self.last_pass: tuple[int, Batch, Tensor] | None = None
        self._spares = 0  # prompts drawn for groups to be replaced
        self._tokens: Tensor | int = 0  # of the inference batch, in all processes

    def _refuse_too_few_prompts(self) -> None:
        needed = self.args.H * self.args.n_step // self.num_generations
        if isinstance(self.train_dataset, Dataset) and len(self.train_dataset) < needed:
            raise ValueError(
                f"train_dataset has {len(self.train_dataset)} prompts, but one inference batch "
                f"takes {needed} (H={self.args.H} * n_step={self.args.n_step} / num_generations="
                f"{self.num_generations}): lower H or n_step, or repeat the dataset"
            )

    # Algorithm 1 ----------------------------------------------------------------------------------

    @override
    def training_step(self, model, inputs, num_items_in_batch=None):
        """Take gradient step h of the H on an inference batch; the first also samples it.

        Trainer then takes the optimizer's step, and calls again with the next prompts.

        Args:
            inputs: X_t, each prompt N_group times: this process's part of N_inference rows.
        """
        self.begin_step()
        began = time.perf_counter()
        with self._optimizer_step(model):
            if not self._steps:
                with self.clock.phase("other"):
                    Z = self._sample(inputs)  # y ~ pi(.|x), N_inference of them, with rewards R
                    Z = self._resample(Z)
                    self._check(Z)
                    self._find_limit(Z)
                    self._tokens = batches.loss_mask(Z).sum()
                    self._steps = batches.split_mini_batches(Z, self.args.H)  # Z_1, ..., Z_H
                with self.clock.phase("backpropagation"):
                    self._compute_log_mu()  # mu <- pi
            h = self.args.H - len(self._steps)  # steps since mu was pi
            Z_h = self._steps.pop(0)
            with self.clock.phase("backpropagation"):
                loss = self._policy_gradient(model, Z_h, h)  # grad J on Z_h
            self._record_step(Z_h, time.perf_counter() - began)
        return loss

    def has_pending_steps(self):
        return bool(self._steps)

    def loop_state(self):
        limit = self.micro_batch_limit
        return {
            "spares": self._spares,
            "last_pass": self.last_pass,
            "micro_batch_limit": limit and astuple(limit),
            "halvings": self.halvings,
        }

    def load_loop_state(self, state):
        self._steps = []
        self._spares, self.last_pass = state.get("spares", 0), state.get("last_pass")
        limit = state.get("micro_batch_limit")
        self.micro_batch_limit = MicroBatchLimit(*limit) if limit else None
        self.halvings = state.get("halvings", 0)
        order = batches.shuffle_endlessly(self.train_dataset, self.args.seed + 1)
        self._spare_prompts = islice(order, self._spares, None)

    @override
    def _compute_loss(self, model, inputs):
        """Return the objective's loss of a micro-batch, times its share of the mini-batch.

        RAPID's is -1/N sum of w A log pi(y|x), where w = pi(y|x) / mu(y|x) and A = R less the mean
        of min(w, eta) R over the group: see `rapid.algorithms.rapid.rapid_loss`.
        """
        algorithm, micro_batch = self.args.algorithm, inputs
        if self.args.uses_trl_loss:
            loss = self._compute_trl_loss(model, micro_batch, self._tokens)
            if "sequence_share" in micro_batch:
                self._means.add({}, micro_batch["sequence_share"])
            self.last_pass = self.state.global_step + 1, micro_batch, self._logp
            return loss
        local_logp, entropy = self._log_pi(model, micro_batch)
        mask = batches.loss_mask(micro_batch)
        # At padding they have no meaning, and a ratio of theirs may be infinite.
        log_pi = self._join_rows(micro_batch, local_logp).masked_fill(mask == 0, 0)  # (N, T)
        detached = log_pi.detach()
        log_mu = micro_batch.get("behavior_logp", detached).masked_fill(mask == 0, 0)
        reference = micro_batch.get("reference_logp", detached).masked_fill(mask == 0, 0)
        rewards, limit = micro_batch["rewards"], self.args.max_completion_length or 1
        inputs = LossInputs(
            log_pi, log_mu, reference, mask, rewards, self.group_size, self.args.H, limit
        )
        loss, metrics = algorithm.loss(self.args.settings, inputs)
        self._add_token_means(micro_batch, local_logp.detach(), entropy)
        share = micro_batch.get(f"{algorithm.mean_over}_share", 1)
        if not micro_batch.get("is_last", True):
            return (loss - loss.detach()) * share  # a chunk's loss counts once, in its last one
        ones = torch.ones_like(loss)  # an evaluation's batch is a part of nothing
        self._means.add(metrics, micro_batch.get(f"{algorithm.metrics_over}_share", ones))
        self.last_pass = self.state.global_step + 1, micro_batch, detached
        if not self.model.training:
            self._log_means()
        return loss * share

    def _add_token_means(self, micro_batch: Batch, logp: Tensor, entropy: Tensor | None) -> None:
        """Add the tokens that a micro-batch runs to the means over tokens, such as the entropy."""
        local, tokens = select_local(micro_batch), batches.loss_mask(micro_batch).sum().clamp(min=1)
        mask = batches.loss_mask(local)
        by_token = {}
        if entropy is not None:
            by_token["entropy"] = token_mean(entropy.detach(), mask)
        if "sampler_logp" in local and "behavior_logp" not in micro_batch:
            off = (local["sampler_logp"] - logp).abs().nan_to_num()
            by_token["sampler_mismatch"] = token_mean(off, mask)
        share = micro_batch.get("token_share", torch.ones_like(tokens, dtype=logp.dtype))
        weight = micro_batch.get("local_weight", 1) * (mask.sum() / tokens)
        self._token_means.add(by_token, share * weight)

    # Sample and grade -----------------------------------------------------------------------------

    def _sample(self, inputs: list[dict]) -> Batch:
        """Return graded completions of these and of the other processes' prompts."""
        batch = self._generate_and_score_completions(inputs)
        batch = gather_batch(batch, self.accelerator, self._tokenizer.pad_token_id)
        batch = batches.mark_graded(batch, self.num_generations)
        step = self.state.global_step + 1
        (*_, clipped_ratio) = self._metrics["train"]["completions/clipped_ratio"]
        self.notices.check_lengths(step, clipped_ratio, len(batch["graded"]))
        self.notices.check_graded(step, batch, inputs[0].get("prompt"))
        return batch

    def _resample(self, batch: Batch) -> Batch:
        """Replace groups without signal by groups of other prompts, for a bounded number of rounds.

        Only groups with signal are taken over, so that no round makes a batch poorer.
        """
        group, processes = self.num_generations, self.accelerator.num_processes
        by = self.args.dynamic_sampling_by
        for _ in range(1, self.args.dynamic_sampling_rounds):
            dead = (~active_groups("unequal", batch[by], group)).nonzero().flatten()
            if not len(dead):
                break
            least = math.lcm(group, processes) // group  # else some would sample more than others
            count = least * math.ceil(len(dead) / least)
            self._spares += count
            indices = [i for i in islice(self._spare_prompts, count) for _ in range(group)]
            prompts = [self.train_dataset[i] for i in indices]
            with self.accelerator.split_between_processes(prompts) as inputs:
                fresh = self._sample(inputs)
            batch = batches.replace_groups(
                batch, dead, fresh, group, self._tokenizer.pad_token_id, by
            )
        return batch

    def _check(self, batch: Batch) -> None:
        """Warn, once, if nothing can be learned from inference batches, and log what is masked."""
        step = self.state.global_step + 1
        if self.args.multi_objective_aggregation == "sum_then_normalize":  # else sums may be equal
            self.notices.check_rewards(step, batch, self.num_generations)
        self.add_metrics(self.notices.check_importance(step, batch))

    # Metrics --------------------------------------------------------------------------------------

    def _record_step(self, mini_batch: Batch, seconds: float) -> None:
        """Log metrics of an optimizer step: of what was run, and of its whole mini-batch."""
        run = self._log_means()
        signal_column = self.args.dynamic_sampling_by
        metrics = compute_mini_batch_metrics(mini_batch, self.num_generations, signal_column)
        metrics["run"] = run
        if len(self.reward_func_names) > 1 and "accuracy" in metrics:
            metrics[f"accuracy/{self.reward_func_names[0]}"] = metrics.pop("accuracy")
        self.add_metrics({f"rapid/{name}": value for name, value in metrics.items()})
        self.add_metrics({"step_time": seconds})

    def _log_means(self) -> float:
        """Log metrics of what was run, by their names here and by TRL's, and return its share."""
        means, run = self._means.take()
        means |= self._token_means.take()[0]
        trl_metrics = to_trl_metrics(means)
        if not self.args.beta:
            trl_metrics.pop("kl", None)  # of nothing to nothing
        self.add_metrics({f"rapid/{name}": value for name, value in means.items()} | trl_metrics)
        return run
