"""A Trainer that runs several micro-batches per optimizer step, smaller ones if memory runs out.

A micro-batch is one forward and backward pass. transformers' Trainer runs one per `training_step`,
and accumulates gradients over several calls. Here one call runs all micro-batches of a step.
"""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from typing import Any, TypeVar

import torch
from accelerate.utils import DistributedType
from accelerate.utils.memory import clear_device_cache
from torch import Tensor
from transformers import Trainer

from rapid.training.memory import AUTO, find_largest_batch, is_out_of_memory

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
# Attributes that TRL updates in each forward pass, and that a repeated pass would count twice:
# metrics, tokens, and a window of entropies.
TRL_COUNTERS = ("_metrics", "_total_train_tokens", "_entropy_window_stats")


class MicroBatchTrainer(Trainer):
    """A Trainer that runs several micro-batches per optimizer step.

    Attributes:
        passes: forward and backward passes that this process has made.
    """

    passes = 0
    # How often memory ran out. Subclasses halve their limit of micro-batches as many times.
    halvings = 0
    # Rows of the step's largest micro-batch, and the number of rows that always stay together, so
    # that a micro-batch of this size cannot be halved. Subclasses set both.
    _largest_micro_batch = 0
    _smallest_micro_batch = 1

    @property
    def _uses_deepspeed(self) -> bool:
        return self.accelerator.distributed_type == DistributedType.DEEPSPEED

    @property
    def _shares_gradients(self) -> bool:
        """Return whether a micro-batch adds its gradient to more than the parameters' `grad`.

        Then it cannot be undone or run alone: other processes wait for an exchange of gradients,
        and DeepSpeed has sums of its own.
        """
        return self.accelerator.num_processes > 1 or self._uses_deepspeed

    def _backpropagate(
        self, model, micro_batch, *, last: bool, share: Tensor | float = 1.0, **kwargs
    ) -> Tensor:
        """Add the gradient of a micro-batch to the step's gradient, and return its loss.

        `share` is the factor of the loss of this micro-batch in the loss of the step.

        accelerate counts backward passes to decide when processes exchange gradients. Here
        processes exchange gradients in the last micro-batch of a step (`last`) only, except with
        DeepSpeed, which exchanges them in each micro-batch. DeepSpeed would also divide the loss by
        gradient_accumulation_steps, which `scale_wrt_gas=False` prevents.
        """
        deepspeed = self._uses_deepspeed
        self.accelerator.gradient_state._set_sync_gradients(last)
        with nullcontext() if last or deepspeed else self.accelerator.no_sync(model):
            with self.compute_loss_context_manager():
                loss: Any = self.compute_loss(model, micro_batch, **kwargs)
                loss = loss * share
            self.accelerator.backward(loss, **({"scale_wrt_gas": False} if deepspeed else {}))
        self.passes += 1
        return loss.detach()

    def _run_with_halving(
        self, work: Callable[[], Result], discard_results: Callable[[], None] = lambda: None
    ) -> Result:
        """Return `work()`, called again with halved micro-batches each time that memory runs out.

        `work` makes micro-batches as large as `halvings`, which is counted up here, allows.
        `discard_results` discards what the interrupted work has computed, except for TRL's metrics
        and counts, which this method restores. If `_shares_gradients`, the error is raised instead.
        """
        counts = deepcopy({name: vars(self)[name] for name in TRL_COUNTERS if name in vars(self)})
        while True:
            try:
                return work()
            except (MemoryError, RuntimeError) as error:
                is_smallest = self._largest_micro_batch <= self._smallest_micro_batch
                if self._shares_gradients or is_smallest or not is_out_of_memory(error):
                    raise
            discard_results()
            vars(self).update(deepcopy(counts))
            clear_device_cache(garbage_collection=True)
            self.halvings += 1
            if self.halvings == 1:
                logger.warning(
                    "step %d: memory ran out in a micro-batch of %d completions. Micro-batches are "
                    "halved until they fit, which does not change the gradient. Set a "
                    "smaller micro_batch_size (micro_batch in params.yaml), or %r to "
                    "find the size before the first step. This warning is given once.",
                    self.state.global_step + 1,
                    self._largest_micro_batch,
                    AUTO,
                )

    def _find_largest_micro_batch(
        self,
        attempt: Callable[[int, float], None],
        at_most: int,
        advice: str,
    ) -> int:
        """Return how many rows of full length fit in a micro-batch of every process.

        See `find_largest_batch`. If not even one row fits, `advice` ends the error message.
        """
        # Allocate gradients: they take memory from the second micro-batch of a step on. Memory for
        # Adam's state, which the first step allocates, is reserved below.
        parameters = self._list_trained_parameters()
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 0.0)
        count, problem = 0, "in another process not even one completion fits"
        try:
            reserved = self._estimate_optimizer_bytes()
            count = find_largest_batch(attempt, at_most, self.accelerator.device, reserved)
        except MemoryError as error:
            problem = str(error)
        for parameter in parameters:
            parameter.grad = None
        counts = torch.tensor([count], device=self.accelerator.device)
        if (count := int(self.accelerator.gather(counts).min())) == 0:
            raise MemoryError(f"{problem}: {advice}")
        return count

    def _try_backward(self, loss: Tensor) -> None:
        """Run a backward pass without an exchange of gradients with other processes.

        The number of trials may differ between processes, so that an exchange would not end.
        DeepSpeed would add the gradient to its own sums.
        """
        if not self._shares_gradients:
            loss.backward()
            return
        checkpointing: Any = self.args.gradient_checkpointing_kwargs or {}
        if checkpointing.get("use_reentrant"):
            raise ValueError(
                "gradient_checkpointing_kwargs: use_reentrant=True does not work in several "
                "processes or with DeepSpeed if micro_batch_size or token_budget is "
                f"{AUTO!r}: leave it unset"
            )
        torch.autograd.grad(loss, self._list_trained_parameters(), allow_unused=True)

    def _list_trained_parameters(self) -> list[Tensor]:
        model: Any = self.model
        return [parameter for parameter in model.parameters() if parameter.requires_grad]

    def _estimate_optimizer_bytes(self) -> float:
        """Return the bytes of the two moments of each parameter, which Adam's first step allocates.

        Returns 0 for other optimizers, and for a state that is allocated already, as by DeepSpeed.
        """
        is_adam = "adam" in str(self.args.optim).lower()
        if not is_adam or self._uses_deepspeed or getattr(self.optimizer, "state", None):
            return 0.0
        return sum(2.0 * parameter.nbytes for parameter in self._list_trained_parameters())
