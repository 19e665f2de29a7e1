"""GRPOTrainer's own loss (objective "trl"), computed on RapidTrainer's micro-batches."""

import math
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from transformers import PreTrainedModel
from trl import GRPOTrainer
from typing_extensions import override

from rapid.training.batches import Batch, loss_mask
from rapid.training.head import patch_head
from rapid.training.trl import LOSS_COLUMNS

# Values of TRL's loss_type whose loss is a mean over the tokens of a step. The losses of all other
# types are means over its completions.
TOKEN_MEAN_LOSS_TYPES = ("bnpo", "cispo", "dapo", "vespo")


class TrlLossTrainer(GRPOTrainer):
    """GRPOTrainer that computes its loss on a micro-batch of `rapid.training.micro_batches`."""

    model: PreTrainedModel
    current_gradient_accumulation_steps: Any
    _micro_batch: Batch | None = None  # the micro-batch whose loss is being computed
    _detached_log_pi: Tensor  # (N, T), log pi of the last micro-batch, without gradient

    def _compute_log_pi(self, model, micro_batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return log pi of each token of a micro-batch, and the entropies, (N, T) both."""
        raise NotImplementedError

    @property
    def _has_custom_loss(self) -> bool:
        """Return whether a subclass overrides `compute_loss` or `_compute_loss`."""
        raise NotImplementedError

    def _get_share(self, micro_batch: Batch) -> Tensor | float:
        """Return the factor of a micro-batch's loss in the loss of the mini-batch, 0-d."""
        raise NotImplementedError

    def _compute_trl_loss(self, model, micro_batch: Batch, tokens: Tensor | int) -> Tensor:
        """Return GRPOTrainer's loss of a micro-batch. A step's loss is the sum of these losses.

        In a subclass with a custom loss the caller multiplies by the shares below, so that here the
        loss is divided by them.

        TRL computes the mean over a micro-batch and divides it by the number of micro-batches in a
        step, as all have the same size. Here sizes differ. Therefore TRL's number of micro-batches
        is set to the inverse of this micro-batch's share of its mini-batch: its share of the tokens
        if the loss is a mean over tokens, else of the completions. What TRL computes per
        micro-batch (mean and quantile of the entropies, the balance of experts) is still computed
        per micro-batch.

        As in TRL, some losses divide a sum over tokens by the mean number of tokens per step,
        which is `num_items_in_batch` (the tokens of the inference batch) divided by the number of
        steps. They do not divide by the tokens of this step.

        For metrics TRL gathers one number per completion and expects equally many in each process.
        Here a process with fewer completions adds NaN, which TRL's means ignore.

        Args:
            tokens: number of tokens in the inference batch, over all processes. In evaluation it is
                ignored: the tokens of the evaluation batch are counted.
        """
        self._micro_batch = micro_batch
        columns = LOSS_COLUMNS.items()
        inputs = {name: micro_batch[column] for name, column in columns if column in micro_batch}
        if self.model.training:
            share = micro_batch[f"{self._trl_loss_unit}_share"]
            self.current_gradient_accumulation_steps = 1 / share
            tokens = tokens * share  # TRL multiplies by 1 / share, so that the share cancels out
        else:
            tokens = self.accelerator.gather(loss_mask(micro_batch).sum()).sum()
        gather, pad = self.accelerator.gather, self.accelerator.pad_across_processes

        def gather_all(values: Tensor) -> Tensor:
            return gather(pad(values, pad_index=math.nan))

        try:
            with patch.object(self.accelerator, "gather", gather_all):
                loss = super()._compute_loss(model, inputs | {"num_items_in_batch": tokens})
        finally:
            self._micro_batch, self.current_gradient_accumulation_steps = None, 1
        if self.model.training and self._has_custom_loss:
            return loss / share.clamp(min=torch.finfo(share.dtype).tiny)  # 0 in a dummy
        return loss

    @property
    def _trl_loss_unit(self) -> str:
        """Return the unit over which TRL's loss is a mean: "sequence" (completions) or "token"."""
        return "token" if self.loss_type in TOKEN_MEAN_LOSS_TYPES else "sequence"

    @override
    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, **kwargs
    ):
        """Return log pi and entropies, (N, T), and the experts' auxiliary loss (None without it).

        For its loss, which is the only call that asks for entropies, TRL would run each prompt once
        per completion. For models with absolute positions TRL also counts padding as positions, so
        that log pi would differ from the sampler's. `_compute_log_pi` does neither. TRL's code is
        kept for all other calls, and for the experts' auxiliary loss: it is a mean over all tokens
        that the experts see, and would change if a prompt were shared.
        """
        needs_trl_code = not kwargs.get("compute_entropy") or kwargs.get("compute_aux_loss")
        if self._micro_batch is None or needs_trl_code:
            with patch_head(model):
                scores = super()._get_per_token_logps_and_entropies(
                    model, input_ids, attention_mask, logits_to_keep, **kwargs
                )
        else:
            logp, entropy = self._compute_log_pi(model, self._micro_batch)
            scores = logp, None if entropy is None else entropy.float(), None
        self._detached_log_pi = scores[0].detach()
        return scores
