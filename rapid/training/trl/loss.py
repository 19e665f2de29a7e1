"""GRPOTrainer's own loss, of the passes that an optimizer step is cut into."""

import math
from typing import Any
from unittest.mock import patch

from torch import Tensor
from transformers import PreTrainedModel
from trl import GRPOTrainer
from typing_extensions import override

from rapid.training.batches import Batch, learned
from rapid.training.head import own_head
from rapid.training.trl import LOSS_COLUMNS

# Losses that are means over the tokens of a step; the others are means over its completions.
OVER_TOKENS = ("bnpo", "cispo", "dapo", "vespo")


class OwnLoss(GRPOTrainer):
    """GRPOTrainer, whose loss is of a pass as `rapid.training.passes` makes it."""

    model: PreTrainedModel
    current_gradient_accumulation_steps: Any
    _piece: Batch | None = None  # the pass whose loss is computed
    _logp: Tensor  # (N, T), its log pi, without gradient

    def _log_pi(self, model, piece: Batch) -> tuple[Tensor, Tensor | None]:
        """Return log pi of each token of a pass, (N, T), and entropies."""
        raise NotImplementedError

    def _loss_of_trl(self, model, piece: Batch, tokens: Tensor | int) -> Tensor:
        """Return GRPOTrainer's loss of a pass; those of an optimizer step sum to the step's.

        TRL makes a fixed number of passes of one size, and divides means over a pass by that
        number. Here it divides by the inverse of the share that a pass is of its mini-batch: of
        the tokens, where the loss is a mean over tokens, else of the completions. What TRL takes
        per pass (the entropies' mean and quantile, the experts' balance) stays so.

        It divides sums over tokens by `num_items_in_batch`, those of the inference batch, over its
        steps: by the mean over these, not by the tokens of this step. That is left as it is.

        For metrics it gathers a number for each completion of the pass, and expects as many in all
        processes. Missing ones are NaN, of which it takes no notice.

        Args:
            tokens: of the inference batch, in all processes. In evaluation, where there is none,
                they are those of the pass.
        """
        self._piece = piece
        theirs = {name: piece[ours] for name, ours in LOSS_COLUMNS.items() if ours in piece}
        if self.model.training:
            by = "token" if self.loss_type in OVER_TOKENS else "sequence"
            share = piece[f"{by}_share"]
            self.current_gradient_accumulation_steps = 1 / share
            tokens = tokens * share
        else:
            tokens = self.accelerator.gather(learned(piece).sum()).sum()
        gather, pad = self.accelerator.gather, self.accelerator.pad_across_processes

        def gather_all(values: Tensor) -> Tensor:
            return gather(pad(values, pad_index=math.nan))

        try:
            with patch.object(self.accelerator, "gather", gather_all):
                return super()._compute_loss(model, theirs | {"num_items_in_batch": tokens})
        finally:
            self._piece = None

    @override
    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, **others
    ):
        """Return log pi and entropies for the loss as for other objectives; the rest as TRL does.

        TRL would compute a prompt once for each completion, and count padding where positions are
        absolute: log pi would not be that of the sampler. It asks for entropies in its loss only.
        The balance of experts is over all tokens that they saw, so that no prompt can be shared.
        """
        is_whole = not others.get("compute_entropy") or others.get("compute_aux_loss")
        if self._piece is None or is_whole:
            with own_head(model):
                found = super()._get_per_token_logps_and_entropies(
                    model, input_ids, attention_mask, logits_to_keep, **others
                )
        else:
            logp, entropy = self._log_pi(model, self._piece)
            found = logp, None if entropy is None else entropy.float(), None
        self._logp = found[0].detach()
        return found
