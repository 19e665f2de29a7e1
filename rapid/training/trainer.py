"""RapidTrainer: Algorithm 1 of the paper and its baselines. `training_step` is the algorithm.

An inference batch of completions is sampled at once, and split into H mini-batches of N_step
completions, one per optimizer step. A mini-batch is run in micro-batches: see `rapid.training`.

Differences from the paper and from TRL's GRPOTrainer:
1. The H mini-batches are consecutive parts of the inference batch, whose prompts are in random
   order, so that each completion is used once. Algorithm 1 draws single completions. With `reuse`
   the same mini-batches are run again in the same order, as with GRPOTrainer's num_iterations.
2. Groups (the completions of one prompt) are not split between mini-batches or between the chunks
   of a mini-batch, because the importance-weighted baseline is a mean over a group. TRL shuffles
   single completions.
3. The loss is a pure function of `rapid.algorithms`, which takes raw rewards, not TRL's advantages.
   Objective "trl" uses GRPOTrainer's own loss in this loop.
4. TRL runs the same number of micro-batches in each step. Here groups whose gradient is zero are
   skipped, and each micro-batch is only as wide as its longest prompt and completion.
5. Every process has the whole inference batch, and the processes divide the groups to be run. With
   TRL each process trains on the completions that it sampled.
6. Two algorithms need more than Algorithm 1: DAPO samples other prompts in place of groups whose
   rewards are all equal, and naive GRPO samples in smaller batches.

`rapid.training.trl` has the changes to TRL's behaviour that this needs.
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
from rapid.algorithms.means import token_mean
from rapid.training import batches
from rapid.training.batch_statistics import compute_mini_batch_metrics, to_trl_metrics
from rapid.training.batches import Batch
from rapid.training.config import RapidConfig
from rapid.training.gradient_trainer import GradientTrainer
from rapid.training.learning_rate_factor import LearningRateFactor
from rapid.training.memory import get_total_memory
from rapid.training.micro_batches import MicroBatchLimit, select_local
from rapid.training.overview import Overview
from rapid.training.processes import gather_batch
from rapid.training.refusals import refuse_token_adapter

PAPER = {
    "title": "RAPID: An Efficient Reinforcement Learning Algorithm for Small Language Models",
    "citation": """@misc{rapid,
    title  = {{RAPID: An Efficient Reinforcement Learning Algorithm for Small Language Models}},
    author = {Lianghuan Huang and Sagnik Anupam and Insup Lee and Shuo Li and Osbert Bastani},
}""",
}


class RapidTrainer(GradientTrainer):
    """Trains a policy with RAPID. Arguments are those of `GRPOTrainer`, with a `RapidConfig`.

    A `GRPOConfig` is accepted too, and its batch sizes determine n_step and H: see `RapidConfig`.

    The reward of a completion is the weighted sum of the reward functions. If all of them return
    None for a completion, its whole group is excluded from the gradient and from metrics of
    rewards, but still counts in the divisor N_step. With objective "trl" only the completion is
    excluded, as in GRPOTrainer. Policies are text models. A completion may have several turns, with
    tools or an environment. The policy reads the texts of these, but is not trained on them.

    Attributes:
        last_pass: the optimizer step of the last forward and backward pass, its micro-batch, and
            this micro-batch's log pi, (N, T), without gradient.
        clock: after `train`, `clock.seconds` has the wall-clock seconds by phase: "sampling" (from
            prompts to completions as texts), "grading", "sync" (of weights to vLLM),
            "backpropagation" (splitting into micro-batches, forward passes outside sampling,
            backward passes, the optimizer's step) and "other".

    Raises:
        ValueError: an argument or a setting is not supported.
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
        refuse_token_adapter(self.model)
        if self.args.algorithm is not RAPID:  # for the model card
            self._name = self.args.algorithm.label
            self._paper = GRPOTrainer._paper if self.args.uses_trl_loss else {}
        Overview.attach(self)
        self._step_scale = LearningRateFactor()
        if self.args.algorithm.scales_steps:
            self.add_callback(self._step_scale)
        self.last_pass: tuple[int, Batch, Tensor] | None = None
        self._resampled_prompts = 0  # prompts drawn so far by `_resample_groups`
        self._batch_tokens: Tensor | int = 0  # tokens of the inference batch, over all processes
        if self._has_custom_loss and not self.args.uses_trl_loss:
            self._smallest_micro_batch = self.num_generations

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
        """Compute the gradient of step h on an inference batch. Step 0 samples the batch first.

        Trainer then steps the optimizer, and calls this method again.

        Args:
            inputs: the prompts X_t, each N_group times; this process's part of N_inference rows. Of
                the H * reuse steps only step 0 reads them.

        Returns:
            The loss of the mini-batch, 0-d.
        """
        self.begin_step()
        began = time.perf_counter()
        with self._gradient_context(model):
            if not self._pending_steps:  # no mini-batch is left: sample the next inference batch
                with self.clock.phase("other"):
                    Z = self._sample_batch(inputs)  # N_inference y ~ pi(.|x), with rewards R
                    self._check_samples(Z, inputs[0].get("prompt"))
                    Z = self._resample_groups(Z)
                    self._check_inference_batch(Z)
                    self._find_micro_batch_limit(Z)
                    self._batch_tokens = batches.loss_mask(Z).sum()
                    mini_batches = batches.split_mini_batches(Z, self.args.H)  # Z_0, ..., Z_(H-1)
                with self.clock.phase("backpropagation"):
                    self._choose_prompt_sharing(mini_batches)
                    self._pending_steps = self._prepare_steps(mini_batches)  # mu <- pi
            h = self.args.steps_per_batch - len(self._pending_steps)  # steps taken since pi was mu
            Z_h = self._pending_steps.pop(0)
            with self.clock.phase("backpropagation"):
                loss = self._compute_gradient(model, Z_h, h)  # grad J on Z_h
            self._record_step(Z_h, time.perf_counter() - began)
        return loss

    def has_pending_steps(self):
        """Return whether optimizer steps are left on the present inference batch."""
        return bool(self._pending_steps)

    def get_loop_state(self):
        """Return the state that `ResumableTrainer` saves with a checkpoint."""
        limit = self.micro_batch_limit
        return {
            "spares": self._resampled_prompts,
            "last_pass": self.last_pass,
            "micro_batch_limit": limit and astuple(limit),
            "halvings": self.halvings,  # of the limit, because memory ran out
            "memory_settings": self._memory_settings,
            "sampler_is_exact": self._sampler_check.is_exact,
            "uses_vllm": self.use_vllm,
            "sharing_is_faster": self.prompt_sharing.is_faster,
        }

    def load_loop_state(self, state):
        """Restore the return value of `get_loop_state`; {} resets the state for a new run.

        What was measured with other settings, on another device or with another sampler is not
        restored, but measured again.
        """
        self._pending_steps = []
        self._resampled_prompts, self.last_pass = state.get("spares", 0), state.get("last_pass")
        self.micro_batch_limit, self.halvings = None, 0
        if state.get("memory_settings") == self._memory_settings:
            limit, self.halvings = state["micro_batch_limit"], state["halvings"]
            self.micro_batch_limit = MicroBatchLimit(*limit) if limit else None
        self.prompt_sharing.is_faster = state.get("sharing_is_faster")
        if state.get("uses_vllm") == self.use_vllm:
            self._sampler_check.is_exact = state["sampler_is_exact"]
        order = batches.shuffle_endlessly(self.train_dataset, self.args.seed + 1)
        # Indices of the prompts that `_resample_groups` draws next.
        self._spare_prompts = islice(order, self._resampled_prompts, None)

    @property
    def _memory_settings(self) -> list[Any]:
        """The settings and the memory on which the size of micro-batches that fit depends."""
        names = "micro_batch_size", "token_budget", "pack", "max_completion_length"
        settings = [getattr(self.args, name) for name in (*names, "gradient_checkpointing")]
        return [*settings, get_total_memory(self.accelerator.device)]

    @override
    def _compute_loss(self, model, inputs):
        """Return the objective's loss of a micro-batch: a mean over its completions or tokens.

        The caller multiplies it by the micro-batch's share of the mini-batch. The shares, by
        completions and by tokens, are columns that `micro_batches.add_shares` adds. They are also
        the weights of the metrics.

        RAPID's loss is -1/N sum of w A log pi(y|x), where w = pi(y|x) / mu(y|x), and A is R minus
        the mean of min(w, eta) R over the group: see `rapid.algorithms.rapid.rapid_loss`.
        """
        algorithm, micro_batch = self.args.algorithm, inputs
        if self.args.uses_trl_loss:
            loss = self._compute_trl_loss(model, micro_batch, self._batch_tokens)
            if "sequence_share" in micro_batch:  # there are no shares in evaluation
                # TRL logs its own metrics. The shares are added up for the metric `run`, the share
                # of the mini-batch that was run.
                self._means.add({}, micro_batch["sequence_share"])
                self._sampler_check.add_errors(micro_batch, self._detached_log_pi)
            self.last_pass = self.state.global_step + 1, micro_batch, self._detached_log_pi
            return loss
        local_logp, entropy = self._compute_log_pi(model, micro_batch)
        mask = batches.loss_mask(micro_batch)
        # Log-probabilities of padding are arbitrary, and their ratios may overflow. Set them to 0.
        log_pi = self._join_rows(micro_batch, local_logp).masked_fill(mask == 0, 0)  # (N, T)
        detached = log_pi.detach()
        log_mu = micro_batch.get("behavior_logp", detached).masked_fill(mask == 0, 0)
        reference = micro_batch.get("reference_logp", detached).masked_fill(mask == 0, 0)
        # `find_contradictions` refuses objectives that divide by the length limit if there is none.
        # Other objectives do not read the 1 that replaces it.
        rewards, limit = micro_batch["rewards"], self.args.max_completion_length or 1
        steps = self.args.steps_per_batch
        loss_inputs = LossInputs(
            log_pi, log_mu, reference, mask, rewards, self.group_size, steps, limit
        )
        loss, metrics = algorithm.loss(self.args.settings, loss_inputs)
        self._add_token_means(micro_batch, local_logp.detach(), entropy)
        if self.model.training:
            self._sampler_check.add_errors(micro_batch, local_logp.detach())
        if not micro_batch.get("is_last", True):
            # Each micro-batch of a chunk computes the loss of the whole chunk. All but the last
            # return 0 with the gradient of their rows, so that the loss is added once.
            return loss - loss.detach()
        ones = torch.ones_like(loss)  # evaluation has no shares: it runs a batch at once
        self._means.add(metrics, micro_batch.get(f"{algorithm.metrics_over}_share", ones))
        self.last_pass = self.state.global_step + 1, micro_batch, detached
        if not self.model.training:
            self._log_means()
        return loss

    @property
    def _has_custom_loss(self) -> bool:
        """Return whether a subclass overrides `compute_loss` or `_compute_loss`.

        Then it is not known which groups have a gradient, nor which rows the loss is computed of.
        """
        names = "compute_loss", "_compute_loss"
        return any(getattr(type(self), name) is not getattr(RapidTrainer, name) for name in names)

    def _get_share(self, micro_batch: Batch) -> Tensor | float:
        """Return the factor of a micro-batch's loss in the loss of the mini-batch, 0-d.

        TRL's code has multiplied its own loss by the share already, unless the loss is custom.
        """
        if self.args.uses_trl_loss:
            share = micro_batch[f"{self._trl_loss_unit}_share"]
            return share if self._has_custom_loss else 1.0
        return micro_batch[f"{self.args.algorithm.mean_over}_share"]

    def _add_token_means(self, micro_batch: Batch, logp: Tensor, entropy: Tensor | None) -> None:
        """Add a micro-batch's entropy and sampler mismatch to the means over tokens of the step."""
        local = select_local(micro_batch)  # the rows that this process runs
        tokens = batches.loss_mask(micro_batch).sum().clamp(min=1)  # of the whole chunk
        mask = batches.loss_mask(local)
        means = {}
        if entropy is not None:
            means["entropy"] = token_mean(entropy.detach(), mask)
        # If there is no column of log mu (`behavior_logp`), pi is still the policy that sampled. In
        # later steps training has changed pi, so that the difference is not the sampler's alone.
        if "sampler_logp" in local and "behavior_logp" not in micro_batch:
            difference = (local["sampler_logp"] - logp).abs().nan_to_num()
            means["sampler_mismatch"] = token_mean(difference, mask)
        share = micro_batch.get("token_share", torch.ones_like(tokens, dtype=logp.dtype))
        # The means are averaged over processes. `local_weight` undoes this if the processes run
        # different rows of the chunk: see `rapid.training.micro_batches`.
        weight = micro_batch.get("local_weight", 1) * (mask.sum() / tokens)
        self._token_means.add(means, share * weight)

    # Sample and grade -----------------------------------------------------------------------------

    def _sample_batch(self, inputs: list[dict]) -> Batch:
        """Sample and grade completions; return those of all processes."""
        batch = self._generate_and_score_completions(inputs)
        batch = gather_batch(batch, self.accelerator, self._tokenizer.pad_token_id)
        return batches.mark_graded(batch, self.num_generations)

    def _check_samples(self, batch: Batch, prompt: Any) -> None:
        """Warn once if all completions are cut off or ungraded; `prompt` is that of the first."""
        step = self.state.global_step + 1
        # TRL appends a value for each batch; the last value is this batch's.
        (*_, clipped_ratio) = self._metrics["train"]["completions/clipped_ratio"]
        self.notices.check_lengths(step, clipped_ratio, len(batch["graded"]))
        self.notices.check_graded(step, batch, prompt)

    def _resample_groups(self, batch: Batch) -> Batch:
        """Replace groups without signal by groups of other prompts (DAPO's dynamic sampling).

        A group has signal if its rewards differ. At most dynamic_sampling_rounds - 1 further rounds
        are sampled, from which only groups with signal are used. They do not enter TRL's metrics,
        such as `reward`, which tell how the policy does on prompts drawn at random.
        """
        group_size, processes = self.num_generations, self.accelerator.num_processes
        signal_column, pad_id = self.args.dynamic_sampling_by, self._tokenizer.pad_token_id
        for _ in range(1, self.args.dynamic_sampling_rounds):
            has_signal = batches.find_groups_with_signal(batch, group_size, signal_column)
            without_signal = (~has_signal).nonzero().flatten()
            if not len(without_signal):
                break
            # A multiple of this number of groups can be divided evenly among the processes.
            unit = math.lcm(group_size, processes) // group_size
            count = unit * math.ceil(len(without_signal) / unit)
            self._resampled_prompts += count
            indices = [i for i in islice(self._spare_prompts, count) for _ in range(group_size)]
            prompts = [self.train_dataset[i] for i in indices]
            with self.accelerator.split_between_processes(prompts) as inputs, self.keep_metrics():
                new_batch = self._sample_batch(inputs)
            batch = batches.replace_groups(
                batch, without_signal, new_batch, group_size, pad_id, signal_column
            )
        return batch

    def _check_inference_batch(self, batch: Batch) -> None:
        """Warn once if nothing is learned; log the share of tokens that TRL masks for vLLM.

        TRL's importance sampling correction for vLLM masks tokens whose log-probabilities under
        vLLM and under the policy differ too much.
        """
        step = self.state.global_step + 1
        # The other value of this setting (with objective "trl" only) normalizes the rewards of each
        # function before they are added, so that completions with equal sums can have a gradient.
        if self.args.multi_objective_aggregation == "sum_then_normalize":
            self.notices.check_rewards(step, batch, self.num_generations)
        self.add_metrics(self.notices.check_importance(step, batch))

    # Metrics --------------------------------------------------------------------------------------

    def _record_step(self, mini_batch: Batch, seconds: float) -> None:
        """Log the metrics of an optimizer step, of its micro-batches and of its mini-batch."""
        self._sampler_check.judge_errors(self)
        means, run_share = self._log_means()
        signal_column = self.args.dynamic_sampling_by
        metrics = compute_mini_batch_metrics(mini_batch, self.num_generations, signal_column)
        if run_share or not self._has_custom_loss:  # 0 if a custom loss adds nothing to the means
            metrics["run"] = run_share
        if self.args.algorithm.scales_steps and means:  # without graded groups there are no means
            self._step_scale.factor = self.args.algorithm.step_scale(means)
            metrics["step_scale"] = self._step_scale.factor
        # `accuracy` is the mean reward of the first function. If there are others, name it.
        if len(self.reward_func_names) > 1 and "accuracy" in metrics:
            metrics[f"accuracy/{self.reward_func_names[0]}"] = metrics.pop("accuracy")
        self.add_metrics({f"rapid/{name}": value for name, value in metrics.items()})
        self.add_metrics({"step_time": seconds})

    def _log_means(self) -> tuple[dict[str, float], float]:
        """Log the means over micro-batches, by this project's names and by TRL's.

        Returns:
            The means, and the share of the mini-batch that was run, which is below 1 if groups were
            skipped. `metrics_over` of the objective says whether completions or tokens are counted.
        """
        means, run_share = self._means.pop_means()
        means |= self._token_means.pop_means()[0]
        trl_metrics = to_trl_metrics(means)
        if not self.args.beta:
            trl_metrics.pop("kl", None)  # there is no reference policy
        self.add_metrics({f"rapid/{name}": value for name, value in means.items()} | trl_metrics)
        return means, run_share
