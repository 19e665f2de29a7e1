"""GRPOTrainer's own loss, of the micro-batches that an optimizer step is cut into."""

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

# Losses that are means over the tokens of a step; the others are means over its completions.
OVER_TOKENS = ("bnpo", "cispo", "dapo", "vespo")


class TrlLossTrainer(GRPOTrainer):
    """GRPOTrainer, whose loss is of a micro-batch of `rapid.training.micro_batches`."""

    model: PreTrainedModel
    current_gradient_accumulation_steps: Any
    _micro_batch: Batch | None = None  # whose loss is computed
    _logp: Tensor  # (N, T), its log pi, without gradient

    def _log_pi(self, model, micro_batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return log pi of each token of a micro-batch, (N, T), and entropies."""
        raise NotImplementedError

    def _compute_trl_loss(self, model, micro_batch: Batch, tokens: Tensor | int) -> Tensor:
        """Return GRPOTrainer's loss of a micro-batch; those of a step sum to the step's.

        TRL runs a fixed number of micro-batches of one size, and divides means over one by that
        number. Here it divides by the inverse of the share that one is of its mini-batch: of the
        tokens, where the loss is a mean over tokens, else of the completions. What TRL takes per
        micro-batch (the entropies' mean and quantile, the experts' balance) stays so.

        It divides sums over tokens by `num_items_in_batch`, those of the inference batch, over its
        steps: by the mean over these, not by the tokens of this step. That is left as it is.

        For metrics it gathers a number for each completion, and expects as many in all
        processes. Missing ones are NaN, of which it takes no notice.

        Args:
            tokens: of the inference batch, in all processes. In evaluation, where there is none,
                they are those of the batch.
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
        """Return log pi and entropies for the loss as for other objectives; the rest as TRL does.

        TRL would compute a prompt once for each completion, and count padding where positions are
        absolute: log pi would not be that of the sampler. It asks for entropies in its loss only.
        The balance of experts is over all tokens that they saw, so that no prompt can be shared.
        """
        is_whole = not named.get("compute_entropy") or named.get("compute_aux_loss")
        if self._micro_batch is None or is_whole:
            with patch_head(model):
                scores = super()._get_per_token_logps_and_entropies(
                    model, input_ids, attention_mask, logits_to_keep, **named
                )
        else:
            logp, entropy = self._log_pi(model, self._micro_batch)
            scores = logp, None if entropy is None else entropy.float(), None
        self._logp = scores[0].detach()
        return scores
