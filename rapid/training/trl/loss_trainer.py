"""GRPOTrainer's own loss (objective "trl"), computed on RapidTrainer's micro-batches.

A micro-batch is the completions of one forward and backward pass. A mini-batch is the data of one
optimizer step, and is run in one or more micro-batches: see `rapid.training.micro_batches`.
"""

import math
from typing import Any
from unittest.mock import patch

from torch import Tensor
from transformers import PreTrainedModel
from trl import GRPOTrainer
from typing_extensions import override

from rapid.training.batches import Batch, loss_mask
from rapid.training.head import patch_head
from rapid.training.trl import LOSS_COLUMNS

# Values of TRL's loss_type whose loss is a mean over the tokens of a step. The losses of all other
# types are means over its completions.
OVER_TOKENS = ("bnpo", "cispo", "dapo", "vespo")


class TrlLossTrainer(GRPOTrainer):
    """GRPOTrainer that computes its loss on a micro-batch of `rapid.training.micro_batches`."""

    model: PreTrainedModel
    current_gradient_accumulation_steps: Any
    _micro_batch: Batch | None = None  # the micro-batch whose loss is being computed
    _logp: Tensor  # (N, T), log pi of the last micro-batch, without gradient

    def _compute_log_pi(self, model, micro_batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return log pi of each token of a micro-batch, and the entropies, (N, T) both."""
        raise NotImplementedError

    def _compute_trl_loss(self, model, micro_batch: Batch, tokens: Tensor | int) -> Tensor:
        """Return GRPOTrainer's loss of a micro-batch. The losses of a step's micro-batches add up.

        TRL computes the mean over a micro-batch and divides it by the number of micro-batches in a
        step, as all have the same size. Here sizes differ. Therefore the number is set to the
        inverse of the micro-batch's share of its mini-batch: the share of the tokens if the loss is
        a mean over tokens, else of the completions. What TRL computes per micro-batch (mean and
        quantile of the entropies, the balance of experts) is still computed per micro-batch.

        Some of TRL's losses divide a sum over tokens by the tokens of the inference batch
        (`num_items_in_batch`) over its number of steps: by the mean tokens per step, not by the
        tokens of this step. This is left as in TRL.

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
            by = "token" if self.loss_type in OVER_TOKENS else "sequence"
            share = micro_batch[f"{by}_share"]
            self.current_gradient_accumulation_steps = 1 / share
            tokens = tokens * share
        else:
            tokens = self.accelerator.gather(loss_mask(micro_batch).sum()).sum()
        gather, pad = self.accelerator.gather, self.accelerator.pad_across_processes

        def gather_all(values: Tensor) -> Tensor:
            return gather(pad(values, pad_index=math.nan))

        try:
            with patch.object(self.accelerator, "gather", gather_all):
                return super()._compute_loss(model, inputs | {"num_items_in_batch": tokens})
        finally:
            self._micro_batch = None

    @override
    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, **named
    ):
        """Return log pi and entropies, (N, T), and the experts' auxiliary loss, or None for it.

        For its loss, which is the only call that asks for entropies, TRL would run each prompt once
        per completion. For models with absolute positions TRL also counts padding as positions, so
        that log pi would differ from the sampler's. `_compute_log_pi` does neither. TRL's code is
        kept for all other calls, and for the experts' auxiliary loss: it is a mean over all tokens
        that the experts see, and would change if a prompt were shared.
        """
        needs_trl_code = not named.get("compute_entropy") or named.get("compute_aux_loss")
        if self._micro_batch is None or needs_trl_code:
            with patch_head(model):
                scores = super()._get_per_token_logps_and_entropies(
                    model, input_ids, attention_mask, logits_to_keep, **named
                )
        else:
            logp, entropy = self._compute_log_pi(model, self._micro_batch)
            scores = logp, None if entropy is None else entropy.float(), None
        self._logp = scores[0].detach()
        return scores
