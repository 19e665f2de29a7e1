"""Computes the gradient of a mini-batch in micro-batches that fit in memory.

See `rapid.training` for terms, and `micro_batches` for the columns of a micro-batch. Shapes: N rows
of T tokens in a chunk or mini-batch; n rows of t tokens in a forward pass.
"""

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rapid.training.batch_statistics import WeightedMeans
from rapid.training.batches import Batch
from rapid.training.caches import can_share_prompts, depends_on_padding
from rapid.training.forward import compute_completion_logps
from rapid.training.memory import AUTO
from rapid.training.micro_batches import (
    MicroBatches,
    MicroBatchLimit,
    count_local_rows,
    make_chunks,
    select_local,
    size_shard,
)
from rapid.training.processes import gather_logps
from rapid.training.prompt_sharing import PromptSharing
from rapid.training.trl.sampling_trainer import SamplingTrainer

logger = logging.getLogger(__name__)


class GradientTrainer(SamplingTrainer):
    """A trainer that computes the gradient of a mini-batch in micro-batches.

    `MicroBatchTrainer`, a base class, runs each of them, and makes them smaller if memory runs out.

    Attributes:
        micro_batch_limit: the limit that trial passes found with token_budget="auto", else None.
        prompt_sharing: decides whether training computes a prompt once for its group.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.micro_batch_limit: MicroBatchLimit | None = None
        self.prompt_sharing = PromptSharing(self.args, self.accelerator)
        # The mini-batches of the optimizer steps that are left on an inference batch. With `reuse`
        # each mini-batch is listed several times: Z_0, ..., Z_(H-1), then again Z_0, ..., Z_(H-1).
        self._pending_steps: list[Batch] = []
        # Means of the objective's metrics, over completions or tokens (`Algorithm.metrics_over`),
        # and of metrics that are always means over tokens.
        self._means = WeightedMeans(self._reduce_mean)
        self._token_means = WeightedMeans(self._reduce_mean)

    @property
    def completions_per_micro_batch(self) -> int:
        """`micro_batch_size`, or with "auto" the number that trial passes found, 0 before them."""
        if self.args.token_budget == AUTO:
            return self.micro_batch_limit.completions if self.micro_batch_limit else 0
        return int(self.args.micro_batch_size or 1)

    def count_passes(self) -> int:
        """Return how many forward and backward passes a step takes in this process.

        It assumes that no group is skipped, all rows are equally long, and `token_budget` is None.
        """
        columns = "prompt_ids", "prompt_mask", "completion_ids", "completion_mask"
        # Prompts and completions of one token each, so that rows have a width of 2.
        mini_batch = dict.fromkeys(columns, torch.ones(self.args.n_step, 1, dtype=torch.long))
        limit = self._compute_micro_batch_limit(width=2)
        group_size = self._rows_per_prompt(limit, width=2)
        groups = range(self.args.n_step // group_size)
        return sum(map(len, self._divide_groups(mini_batch, groups, group_size, limit)))

    def _divide_groups(self, *arguments: Any, **named: Any) -> list[MicroBatches]:
        """Return the chunks that this process runs. Arguments are those of `make_chunks`."""
        return make_chunks(
            *arguments,
            processes=self.accelerator.num_processes,
            process=self.accelerator.process_index,
            # In each micro-batch a custom loss may be the loss of all rows of its chunk.
            splits_groups=self.args.uses_trl_loss or not self._has_custom_loss,
            **named,
        )

    def _reduce_mean(self, values: Tensor) -> Tensor:
        return self.accelerator.reduce(values, "mean")

    def _compute_gradient(self, model, mini_batch: Batch, step: int) -> Tensor:
        """Add the gradient of a mini-batch's loss to the parameters' `grad`; return the loss, 0-d.

        `step` is h, the number of optimizer steps since the policy was mu.
        """
        loss = self._run_with_halving(
            partial(self._run_micro_batches, model, mini_batch, step),
            partial(self._forget_micro_batches, model),
        )
        if not loss.isfinite():
            raise FloatingPointError(
                f"step {self.state.global_step + 1}: the loss is {loss}: rewards or "
                "importance weights are too large"
            )
        return loss

    def _run_micro_batches(self, model, mini_batch: Batch, step: int) -> Tensor:
        """Do what `_compute_gradient` does in one try, which fails if memory runs out."""
        loss = torch.zeros((), device=self.accelerator.device)
        chunks = self._make_chunks(mini_batch, step)
        for number, chunk in enumerate(chunks, 1):
            self._add_shared_logp(chunk, on_policy=self._is_on_policy(step))
            for micro_batch in chunk:
                last = number == len(chunks) and micro_batch is chunk[-1]
                share = self._get_share(micro_batch)
                loss = loss + self._backpropagate(model, micro_batch, last=last, share=share)
        if not chunks:  # if no group has a gradient, the optimizer steps with a gradient of 0
            for parameter in model.parameters():
                if parameter.requires_grad and parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
        return loss

    def _forget_micro_batches(self, model) -> None:
        """Discard the gradient and the metrics of the micro-batches that have been run."""
        model.zero_grad(set_to_none=True)
        self._means.discard()
        self._token_means.discard()
        self._sampler_check.discard_errors()

    def _is_on_policy(self, step: int) -> bool:
        """Return whether log pi equals log mu after `step` steps on an inference batch."""
        return step == 0 and not self.args.use_rollout_logps

    def _add_shared_logp(self, chunk: MicroBatches, on_policy: bool) -> None:
        """Add the column `chunk_logp`, (N, T), to the micro-batches of a chunk that is split.

        Each micro-batch computes the loss of all rows of its chunk, but has log pi of its own rows
        only, which it writes into this shared tensor. For the other rows the tensor has

        - log pi from an extra forward pass, if a row's gradient depends on the importance weights
          of other rows (`Algorithm.depends_on_group_weights`; not on-policy, where they are 1), or
          if the rows of the chunk are divided among processes;
        - otherwise log mu, or 0 if the chunk has no log mu, because the gradient does not depend on
          the values.
        """
        first = chunk[0]
        if "is_last" not in first:  # each process runs the chunk in one micro-batch
            return
        algorithm, settings = self.args.algorithm, self.args.settings
        needs_logp = not on_policy and algorithm.depends_on_group_weights(settings)
        if needs_logp or first["local_weight"] != 1:
            with torch.no_grad():
                logp = self._compute_chunk_log_pi(self.model, chunk)
        else:
            zeros = torch.zeros_like(first["completion_ids"], dtype=self._logp_dtype)
            logp = first.get("behavior_logp", zeros).to(self._logp_dtype, copy=True)
        for micro_batch in chunk:
            micro_batch["chunk_logp"] = logp

    # The size of micro-batches --------------------------------------------------------------------

    def _make_chunks(self, mini_batch: Batch, step: int) -> list[MicroBatches]:
        """Return the chunks that this process runs: equally many micro-batches in each process."""
        args = self.args
        width = mini_batch["prompt_ids"].size(1) + mini_batch["completion_ids"].size(1)  # padded
        limit = self._compute_micro_batch_limit(width)
        group_size = self._rows_per_prompt(limit, width)
        is_run = mini_batch["graded"][::group_size]  # (K,), for each group
        if args.uses_trl_loss:
            is_run = is_run | True  # this loss leaves out ungraded completions itself
        elif args.skip_zero_groups and not (args.algorithm.scales_steps or self._has_custom_loss):
            is_run = is_run & args.algorithm.find_groups_with_gradient(
                mini_batch["rewards"], group_size, args.settings, on_policy=self._is_on_policy(step)
            )
        # DeepSpeed and the loss scaler of float16 need at least one backward pass in each step.
        chunks = self._divide_groups(
            mini_batch,
            is_run.nonzero().flatten().tolist(),
            group_size,
            limit,
            min_micro_batches=int(self._uses_deepspeed or self.accelerator.scaler is not None),
            same_prompt_length=depends_on_padding(self.model),
        )
        rows = (count_local_rows(micro_batch) for chunk in chunks for micro_batch in chunk)
        self._largest_micro_batch = max(rows, default=0)
        return chunks

    def _compute_micro_batch_limit(self, width: int) -> MicroBatchLimit:
        """Return the limit of micro-batches for rows of `width` tokens, after all halvings."""
        args, limit = self.args, self.micro_batch_limit
        if limit is None:
            completions = int(args.micro_batch_size or 1)
            tokens = completions * width if args.token_budget in (None, AUTO) else args.token_budget
            limit = MicroBatchLimit(completions, int(tokens or 0) if args.pack else None)
        return limit.halve(self.halvings)

    def _rows_per_prompt(self, limit: MicroBatchLimit, width: int) -> int:
        """Return how many completions of a prompt stay together in a chunk.

        This is a whole group, except in training with TRL's loss. There the loss of a completion
        does not depend on its group, which may be divided among processes or micro-batches.
        """
        if not (self.args.uses_trl_loss and self.model.training):
            return self.group_size
        groups = self.args.n_step // self.group_size
        rows = size_shard(groups, self.group_size, self.accelerator.num_processes)
        # The largest divisor of `rows` that the limit allows.
        fits = (n for n in range(rows, 1, -1) if rows % n == 0 and limit.allows(n, width))
        return next(fits, 1)

    def _find_micro_batch_limit(self, batch: Batch) -> None:
        """With token_budget="auto", find the largest micro-batch that fits in memory, once.

        The trials have the longest prompt of an inference batch, and completions of full length,
        because the first sampled completions may be shorter than later ones.
        """
        if self.args.token_budget != AUTO or self.micro_batch_limit is not None:
            return
        longest_row = int(batch["prompt_mask"].sum(1).argmax())
        prompt = batch["prompt_ids"][longest_row][batch["prompt_mask"][longest_row].bool()]
        length = self.args.max_completion_length or batch["completion_ids"].size(1)

        def attempt(count: int, share: float = 1.0) -> None:
            """Run `count` completions with a share of the full length; see `find_largest_batch`."""
            tokens = prompt[: math.ceil(share * len(prompt))]
            ids = tokens.expand(count, -1)
            # A repeated token: values do not change the memory. At least two, as in `trim_padding`.
            completion = tokens[-1:].expand(count, max(2, math.ceil(share * length)))
            trial = {"prompt_ids": ids, "prompt_mask": torch.ones_like(ids)}
            trial |= {"completion_ids": completion, "completion_mask": torch.ones_like(completion)}
            with torch.enable_grad(), self.accelerator.autocast():
                per_prompt = math.gcd(count, self.num_generations)
                # Passes without sharing need more memory, and may be chosen later.
                shares = self._shares_prompts and not self.prompt_sharing.needs_timing
                logp, _ = self._compute_completion_logps(self.model, trial, per_prompt, shares)
            self._try_backward(logp.sum())

        at_most = math.ceil(self.args.n_step / self.accelerator.num_processes)
        advice = f"lower max_completion_length ({length}), or use a device with more memory"
        if not self.args.gradient_checkpointing:
            advice = f"set gradient_checkpointing=True, {advice}"
        count = self._find_largest_micro_batch(attempt, at_most, advice)
        width = len(prompt) + length
        self.micro_batch_limit = MicroBatchLimit(count, count * width if self.args.pack else None)
        logger.info("micro-batch: %d completions of %d tokens (with the prompt) fit", count, width)

    # Log-probabilities ----------------------------------------------------------------------------

    @property
    def _logp_dtype(self) -> torch.dtype:
        """Return the precision of log-probabilities: float32, or float64 if weights have it."""
        return torch.promote_types(self.model.dtype, torch.float32)

    def _prepare_steps(self, mini_batches: list[Batch]) -> list[Batch]:
        """Return the mini-batch of each optimizer step on an inference batch: all, `reuse` times.

        Log mu and, for a KL term, the reference's log-probabilities are added to each mini-batch
        once, for all its steps. With `reuse_logp` the first step needs no log mu: mu is still pi,
        and the forward pass for the gradient computes log pi. With `reuse` it must get no log mu: a
        process has only that of groups that it runs in the last step, which may be other groups.
        """
        needs_log_mu = "behavior_logp" not in mini_batches[0]  # TRL may add it, with vLLM
        uses_log_pi = needs_log_mu and (self.args.reuse_logp or self.args.reuse > 1)
        for step, mini_batch in enumerate(mini_batches):
            # If a group has no gradient in the last step on its mini-batch, it has none in earlier
            # steps on it either.
            last_step = step + self.args.H * (self.args.reuse - 1)  # 0: only the first step uses it
            functions = {"reference_logp": self._compute_reference_logp} if self.beta else {}
            if needs_log_mu and (last_step or not uses_log_pi):
                functions["behavior_logp"] = self._compute_behavior_logp
            if functions:
                fill = partial(self._fill_columns, mini_batch, last_step, functions)
                self._run_with_halving(fill)
        first, *rest = mini_batches * self.args.reuse
        if uses_log_pi:
            first = {name: column for name, column in first.items() if name != "behavior_logp"}
        return [first, *rest]

    def _fill_columns(
        self, mini_batch: Batch, step: int, functions: Mapping[str, Callable]
    ) -> None:
        """Add columns of log-probabilities to a mini-batch, with 0 in rows that are not run.

        `functions` maps the name of a column to a function that returns it, (N, T), for a chunk.
        The column `row` of a chunk has the indices of its rows in the mini-batch.
        """
        zeros = torch.zeros_like(mini_batch["completion_ids"], dtype=self._logp_dtype)
        for name in functions:
            mini_batch[name] = zeros.clone()
        for chunk in self._make_chunks(mini_batch, step):
            if chunk[0]["sequence_share"]:  # 0 in a dummy (see `make_dummy`), which is left out
                for name, compute in functions.items():
                    values = compute(chunk)
                    mini_batch[name][chunk[0]["row"], : values.size(1)] = values.to(zeros)

    def _compute_behavior_logp(self, chunk: MicroBatches) -> Tensor:
        """Return log mu of a chunk, (N, T), from the sampler or from the policy's forward pass."""
        sampled = chunk[0].get("sampler_logp")
        if sampled is not None and self.uses_sampler_logps() and not sampled.isnan().any():
            return sampled
        with torch.no_grad():
            return self._compute_chunk_log_pi(self.model, chunk)

    def _compute_chunk_log_pi(self, model, chunk: MicroBatches) -> Tensor:
        """Return log pi of each token of a chunk under `model`, (N, T), from its micro-batches."""
        first = chunk[0]
        if "is_last" not in first:
            return self._join_rows(first, self._compute_log_pi(model, first)[0])
        shared = torch.zeros_like(first["completion_ids"], dtype=self._logp_dtype)
        for micro_batch in chunk:
            logp, _ = self._compute_log_pi(model, micro_batch)
            self._join_rows(micro_batch | {"chunk_logp": shared}, logp)
        if first["local_weight"] == 1:
            return shared
        # A process for which no rows were left has also run the last row, with weight 0. The weight
        # removes this copy from the sum.
        return self.accelerator.reduce(shared * (first["local_weight"] > 0), "sum")

    def _join_rows(self, micro_batch: Batch, logp: Tensor) -> Tensor:
        """Return log pi of all rows of a chunk, (N, T), given that of a micro-batch's rows, (n, t).

        Only the rows of the micro-batch carry a gradient.
        """
        count, width = micro_batch["completion_ids"].shape
        if "local_rows" not in micro_batch:  # the micro-batch is the whole chunk
            return logp
        if "is_last" not in micro_batch:  # each process has one micro-batch of the chunk
            return gather_logps(logp, self.accelerator)[:count]  # without copies of the last row
        logp, rows = pad(logp, (0, width - logp.size(1))), micro_batch["local_rows"]
        micro_batch["chunk_logp"][rows] = logp.detach()
        # The values are log pi, and the gradient is multiplied by `local_weight`.
        weighted = logp.detach() + micro_batch["local_weight"] * (logp - logp.detach())
        return micro_batch["chunk_logp"].index_copy(0, rows, weighted)

    def _compute_log_pi(self, model, micro_batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return log pi and the entropies of the rows that a micro-batch runs, (n, t) each."""
        local, per_prompt = select_local(micro_batch), self._rows_with_one_prompt(micro_batch)
        # With a shared prompt the model is called twice. If each row has its own prompt, one call
        # without sharing is better. But processes have to make equally many calls, and if a chunk
        # is split, another process may have several rows of a prompt in its micro-batch.
        may_choose = "is_last" not in micro_batch or self.accelerator.num_processes == 1
        shares_prompt = self._shares_prompts and not (may_choose and per_prompt == 1)
        with self.accelerator.autocast():
            return self._compute_completion_logps(model, local, per_prompt, shares_prompt)

    def _rows_with_one_prompt(self, micro_batch: Batch) -> int:
        """Return how many successive rows that a micro-batch runs have the same prompt."""
        rows = count_local_rows(micro_batch)
        return math.gcd(rows, int(micro_batch.get("rows_per_prompt", self.group_size)))

    def _choose_prompt_sharing(self, mini_batches: list[Batch]) -> None:
        """Time once whether training is faster with shared prompts, if `PromptSharing` has to know.

        The largest micro-batch that has a gradient and several completions of a prompt is timed. If
        an inference batch has none, the next one is waited for.
        """
        is_wanted = self.prompt_sharing.needs_timing and self._shares_prompts
        if not (is_wanted and can_share_prompts(self.model)):
            return
        micro_batches = [
            micro_batch
            for step, mini_batch in enumerate(mini_batches)
            for chunk in self._make_chunks(mini_batch, step)
            for micro_batch in chunk
            if micro_batch["sequence_share"] and self._rows_with_one_prompt(micro_batch) > 1
        ]
        if not micro_batches:
            return
        largest = max(micro_batches, key=count_local_rows)

        def run_pass() -> None:
            with torch.enable_grad():
                logp, _ = self._compute_log_pi(self.model, largest)
            torch.autograd.grad(logp.sum(), self._list_trained_parameters(), allow_unused=True)

        self.prompt_sharing.measure(run_pass)

    @property
    def _shares_prompts(self) -> bool:
        """Return whether a prompt is computed once per group, if `can_share_prompts` is True.

        It is not with cast_lm_head_to_fp32, which TRL applies to whole sequences only, nor with an
        environment or a `rollout_func`, which may change the prompt of each completion.
        """
        may_share = self.rollout_func is None and self.environment_factories is None
        return may_share and not self.args.cast_lm_head_to_fp32 and self.prompt_sharing.is_wanted

    def _compute_completion_logps(
        self, model, batch: Batch, rows_per_prompt: int, shares_prompt: bool
    ):
        return compute_completion_logps(
            model,
            batch,
            rows_per_prompt,
            self.temperature,
            shares_prompt,
            needs_entropy_gradient=self.args.uses_trl_loss,  # which may have an entropy bonus
        )
