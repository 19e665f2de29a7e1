"""The gradient of a mini-batch, in passes that memory allows."""

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rapid.training.batches import Batch
from rapid.training.caches import sees_padding
from rapid.training.forward import completion_logp
from rapid.training.metrics import WeightedMeans
from rapid.training.passes import Block, PassSize, blocks, own_part, part_of_group
from rapid.training.processes import with_others
from rapid.training.room import AUTO
from rapid.training.trl.trainer import SamplingTrainer

logger = logging.getLogger(__name__)


class GradientTrainer(SamplingTrainer):
    """A trainer that learns from mini-batches, in passes.

    `pass_size` is the most that a pass may hold where memory was to decide it, or None.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.pass_size: PassSize | None = None
        self._steps: list[Batch] = []  # Z_h, ..., Z_H
        self._means = WeightedMeans(self._process_mean)  # over completions, or as the loss has it
        self._token_means = WeightedMeans(self._process_mean)

    @property
    def pass_completions(self) -> int:
        """Completions of full length in a pass, at most; 0 where memory is yet to decide it."""
        if self.args.token_budget == AUTO:
            return self.pass_size.completions if self.pass_size else 0
        return int(self.args.micro_batch_size or 1)

    def _process_mean(self, values: Tensor) -> Tensor:
        return self.accelerator.reduce(values, "mean")

    def _policy_gradient(self, model, mini_batch: Batch, step: int) -> Tensor:
        """Leave the gradient of a mini-batch's loss in the parameters, and return the loss.

        Args:
            step: h, the steps that the policy has taken since it was mu.
        """
        loss = self._in_smaller_passes(
            partial(self._run_passes, model, mini_batch, step), partial(self._forget_passes, model)
        )
        if not loss.isfinite():
            raise FloatingPointError(
                f"step {self.state.global_step + 1}: the loss is {loss}: the rewards, or the "
                "weights, are too large for it"
            )
        return loss

    def _run_passes(self, model, mini_batch: Batch, step: int) -> Tensor:
        loss = torch.zeros((), device=self.accelerator.device)
        blocks = self._blocks(mini_batch, step)
        for number, block in enumerate(blocks, 1):
            self._share_logp(block, has_moved=step > 0)
            for piece in block:
                last = number == len(blocks) and piece is block[-1]
                loss = loss + self._backpropagate(model, piece, last=last)
        if not blocks:
            for parameter in model.parameters():
                if parameter.requires_grad and parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
        return loss

    def _forget_passes(self, model) -> None:
        model.zero_grad(set_to_none=True)
        self._means.take_back()
        self._token_means.take_back()

    def _share_logp(self, block: Block, has_moved: bool) -> None:
        """Give the passes of a block `block_logp`, (N, T), which they share: log pi of its rows.

        Each puts in its own. What the others' gradients need of it is an importance weight, and
        only of an objective that compares these: then another forward pass tells it in advance, as
        it does where other processes have part of the rows. Else log mu does in its place.
        """
        first = block[0]
        if "is_last" not in first:
            return
        compares = has_moved and self.args.algorithm.compares_weights(self.args.settings)
        if compares or first["own_weight"] != 1:
            with torch.no_grad():
                logp = self._logp_of(self.model, block)
        else:
            none = torch.zeros_like(first["completion_ids"], dtype=self._precise)
            logp = first.get("behavior_logp", none).to(self._precise, copy=True)
        for piece in block:
            piece["block_logp"] = logp

    # The size of passes ---------------------------------------------------------------------------

    def _blocks(self, mini_batch: Batch, step: int) -> list[Block]:
        """Return what this process runs in a step: as many passes as the others."""
        args = self.args
        # All mini-batches are as wide as the longest prompt and completion of the inference batch.
        width = mini_batch["prompt_ids"].size(1) + mini_batch["completion_ids"].size(1)
        size = self._size(width)
        group = self._together(size, width)
        runs = mini_batch["graded"][::group]  # (K,)
        if args.trls_loss:
            runs = runs | True
        elif args.skip_zero_groups:
            runs = runs & args.algorithm.contributes(
                mini_batch["rewards"], group, args.settings, on_policy=step == 0
            )
        # DeepSpeed steps in a backward pass, and float16's scaler knows its scale from one.
        needs_one = self._uses_deepspeed or self.accelerator.scaler is not None
        own_blocks = blocks(
            mini_batch,
            runs.nonzero().flatten().tolist(),
            group,
            size,
            processes=self.accelerator.num_processes,
            process=self.accelerator.process_index,
            least=int(needs_one),
            alike=sees_padding(self.model),
        )
        rows = [piece.get("own_rows", piece["rewards"]) for block in own_blocks for piece in block]
        self._largest = max(map(len, rows), default=0)
        return own_blocks

    def _size(self, width: int) -> PassSize:
        """Return the most that a pass may hold, in an inference batch of so many tokens a row."""
        args, size = self.args, self.pass_size
        if size is None:
            completions = int(args.micro_batch_size or 1)
            tokens = completions * width if args.token_budget in (None, AUTO) else args.token_budget
            size = PassSize(completions, int(tokens or 0) if args.pack else None)
        return size.halved(self.halvings)

    def _together(self, size: PassSize, width: int) -> int:
        """Return how many completions of a prompt stay together in a block: a group.

        With TRL's loss each counts by itself, so that processes may have a part of a group each,
        and a pass holds part of one that is too large.
        """
        if not (self.args.trls_loss and self.model.training):
            return self.group_size
        groups = self.args.n_step // self.num_generations
        part = part_of_group(groups, self.num_generations, self.accelerator.num_processes)
        fits = (n for n in range(part, 1, -1) if part % n == 0 and size.holds(n, width))
        return next(fits, 1)

    def _find_pass_size(self, batch: Batch) -> None:
        """Find the largest pass of completions of full length that memory allows, once.

        It is tried before any step counts: what is sampled first may be short, and later not.
        """
        if self.args.token_budget != AUTO or self.pass_size is not None:
            return
        longest = int(batch["prompt_mask"].sum(1).argmax())
        prompt = batch["prompt_ids"][longest][batch["prompt_mask"][longest].bool()]
        limit = self.args.max_completion_length or batch["completion_ids"].size(1)
        parameters = [p for p in self.model.parameters() if p.requires_grad]

        def attempt(count: int, share: float = 1.0) -> None:
            tokens, length = (
                prompt[: math.ceil(share * len(prompt))],
                max(2, math.ceil(share * limit)),
            )
            ids = tokens.expand(count, -1)
            completion = tokens[-1:].expand(count, length)
            piece = {"prompt_ids": ids, "prompt_mask": torch.ones_like(ids)}
            piece |= {"completion_ids": completion, "completion_mask": torch.ones_like(completion)}
            with torch.enable_grad(), self.accelerator.autocast():
                one_prompt = math.gcd(count, self.num_generations)
                logp, _ = self._completion_logp(self.model, piece, one_prompt, self._shares_prompts)
            self._try_backward(logp.sum(), parameters)

        most = math.ceil(self.args.n_step / self.accelerator.num_processes)
        advice = f"lower max_completion_length ({limit}), or take a device with more memory"
        if not self.args.gradient_checkpointing:
            advice = f"set gradient_checkpointing=True, {advice}"
        count = self._largest_pass(attempt, most, parameters, advice)
        width = len(prompt) + limit
        self.pass_size = PassSize(count, count * width if self.args.pack else None)
        logger.info("passes of at most %d completions of %d tokens: memory allows it", count, width)

    # Log-probabilities ----------------------------------------------------------------------------

    @property
    def _precise(self) -> torch.dtype:
        """Return the precision of log-probabilities: float32, or that of weights in float64."""
        return torch.promote_types(self.model.dtype, torch.float32)

    def _keep_logp(self) -> None:
        """Give mini-batches the reference's, and log mu from the second on: at first mu is pi."""
        first = 1 if self.args.reuse_logp else 0
        for step, mini_batch in enumerate(self._steps):
            columns = {"reference_logp": self._reference_logp} if self.beta else {}
            if step >= first and "behavior_logp" not in mini_batch:  # TRL's, to correct vLLM's
                columns["behavior_logp"] = self._behavior_logp
            if columns:
                self._in_smaller_passes(partial(self._put_columns, mini_batch, step, columns))

    def _put_columns(
        self, mini_batch: Batch, step: int, columns: Mapping[str, Callable[[Block], Tensor]]
    ) -> None:
        zeros = torch.zeros_like(mini_batch["completion_ids"], dtype=self._precise)
        for name in columns:  # also of a process that has nothing to run
            mini_batch[name] = zeros.clone()
        for block in self._blocks(mini_batch, step):
            if block[0]["sequence_share"]:  # else it is run for the sake of other processes
                for name, find in columns.items():
                    values = find(block)
                    mini_batch[name][block[0]["row"], : values.size(1)] = values.to(zeros)

    def _behavior_logp(self, block: Block) -> Tensor:
        """Return log mu of a block, (N, T): the sampler's, if it tells it, or the policy's now."""
        sampler_logp = block[0].get("sampler_logp")
        if sampler_logp is not None and self.sampler_tells_mu() and not sampler_logp.isnan().any():
            return sampler_logp
        with torch.no_grad():
            return self._logp_of(self.model, block)

    def _logp_of(self, model, block: Block) -> Tensor:
        """Return log pi of each token of a block, (N, T), from all its passes."""
        first = block[0]
        if "is_last" not in first:
            return self._with_other_rows(first, self._log_pi(model, first)[0])
        shared = torch.zeros_like(first["completion_ids"], dtype=self._precise)
        for piece in block:
            self._with_other_rows(piece | {"block_logp": shared}, self._log_pi(model, piece)[0])
        if first["own_weight"] == 1:
            return shared
        return self.accelerator.reduce(shared * (first["own_weight"] > 0), "sum")

    def _with_other_rows(self, piece: Batch, own_logp: Tensor) -> Tensor:
        """Return log pi of all rows of a block, (N, T), with the gradient of those of a pass."""
        count, width = piece["completion_ids"].shape
        if "own_rows" not in piece:
            return own_logp
        if "is_last" not in piece:
            return with_others(own_logp, self.accelerator)[:count]
        own_logp, own = pad(own_logp, (0, width - own_logp.size(1))), piece["own_rows"]
        piece["block_logp"][own] = own_logp.detach()
        weighted = own_logp.detach() + piece["own_weight"] * (own_logp - own_logp.detach())
        return piece["block_logp"].index_copy(0, own, weighted)

    def _log_pi(self, model, piece: Batch) -> tuple[Tensor, Tensor | None]:
        """Return log pi of each token that a pass runs, (n, t), and the entropies."""
        own = own_part(piece)
        count = len(own["completion_ids"])
        one_prompt = math.gcd(count, int(piece.get("one_prompt", self.group_size)))
        # Another process may have several rows where this has one. Both call the model as often.
        alone = "is_last" not in piece or self.accelerator.num_processes == 1
        share = self._shares_prompts and not (alone and one_prompt == 1)
        with self.accelerator.autocast():
            return self._completion_logp(model, own, one_prompt, share)

    @property
    def _shares_prompts(self) -> bool:
        """Return whether a prompt is computed once a group. Only TRL's head heeds a cast of it."""
        return self.args.share_prefill and self.same_prompts and not self.args.cast_lm_head_to_fp32

    def _completion_logp(self, model, piece: Batch, one_prompt: int, share: bool):
        return completion_logp(
            model, piece, one_prompt, self.temperature, share, self.args.trls_loss
        )
