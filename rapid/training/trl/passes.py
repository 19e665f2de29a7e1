"""A Trainer that makes several passes in an optimizer step, and smaller ones where memory runs out.

transformers makes one pass in a step, and accumulates gradients over several of its steps.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from accelerate.utils import DistributedType
from torch import Tensor
from transformers import Trainer

from rapid.training.room import AUTO, is_out_of_memory, release_memory

logger = logging.getLogger(__name__)
Result = TypeVar("Result")


class PassTrainer(Trainer):
    """A Trainer whose step is several passes. `halvings` is how often their size was halved."""

    halvings = 0
    _largest = 0  # rows of the largest pass of a step
    _waits = False  # whether other processes wait for this one's passes, which must not fail then

    @property
    def _uses_deepspeed(self) -> bool:
        return self.accelerator.distributed_type == DistributedType.DEEPSPEED

    def _backpropagate(self, model, piece, *, last: bool, **named) -> Tensor:
        """Add the gradient of a pass to the others of its step, and return its loss.

        accelerate counts backward passes to know when processes exchange gradients. Here they do so
        in the last pass of a step only, whichever it is. DeepSpeed does so in each; it would divide
        by accumulation steps.

        Args:
            named: arguments of `compute_loss`.
        """
        deepspeed = self._uses_deepspeed
        self._waits = self._waits or deepspeed or (last and self.accelerator.num_processes > 1)
        self.accelerator.gradient_state._set_sync_gradients(last)
        with nullcontext() if last or deepspeed else self.accelerator.no_sync(model):
            with self.compute_loss_context_manager():
                loss: Any = self.compute_loss(model, piece, **named)
            self.accelerator.backward(loss, **({"scale_wrt_gas": False} if deepspeed else {}))
        return loss.detach()

    def _in_smaller_passes(
        self, work: Callable[[], Result], forget: Callable[[], None] = lambda: None
    ) -> Result:
        """Return what some work does, in passes of half the size each time that memory runs out.

        Where other processes wait for a pass it cannot be run again.

        Args:
            forget: undoes what a part of the work has done.
        """
        while True:
            try:
                return work()
            except (MemoryError, RuntimeError) as error:
                if self._waits or self._largest <= 1 or not is_out_of_memory(error):
                    raise
            forget()
            release_memory()
            self.halvings += 1
            if self.halvings == 1:
                logger.warning(
                    "step %d: memory ran out in a pass of %d. Passes are halved until they fit, "
                    "and the gradient stays what it is. Set a smaller micro_batch_size (in "
                    "params.yaml micro_batch), or %r, to have it decided before the first step. "
                    "This is said once.",
                    self.state.global_step + 1,
                    self._largest,
                    AUTO,
                )

    def _optimizer_bytes(self, parameters: Sequence[Tensor]) -> float:
        """Return what an Adam will take in its first step; DeepSpeed's has taken it before."""
        is_adam = "adam" in str(self.args.optim).lower()
        if not is_adam or self._uses_deepspeed or getattr(self.optimizer, "state", None):
            return 0.0
        return sum(2.0 * one.numel() * one.element_size() for one in parameters)
