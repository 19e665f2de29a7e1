"""RapidConfig: TRL's GRPOConfig with the paper's letters."""

from dataclasses import dataclass, field
from typing import Literal

from trl import GRPOConfig

Objective = Literal["rapid", "pg", "grpo", "dapo"]
USES_KL = {"grpo"}


@dataclass
class RapidConfig(GRPOConfig):
    """Configuration of `RapidTrainer`; everything that `GRPOConfig` has, and:

    Args:
        objective: "rapid", or a baseline in the same loop: "pg", "grpo", "dapo".
        H: optimizer steps on one inference batch, N_inference / N_step.
        n_step: N_step, completions an optimizer step, over all processes. `num_generations` is
            N_group, `per_device_train_batch_size` the completions of one forward and backward pass.
        eta: importance weights are clipped to at most eta (objective "rapid").
        clip: "advantage" clips the weights in the advantage only (Algorithm 1 to the letter);
            "both" clips the weight in front of it too.
        dynamic_sampling_rounds: 1 takes the sampled groups as they are; more resamples, with other
            prompts, the groups whose rewards are all equal, up to that many rounds (DAPO).
        sampling_batch_size: completions sampled at a time, by each process; None samples the whole
            inference batch at once. With vLLM a multiple of `num_generations`.
        sampler_logp: take log mu from transformers' sampler, which has computed it, instead of from
            another forward pass. Only in float32, where the two agree.

    Raises:
        ValueError: settings that contradict each other; the message says what to change.
    """

    objective: Objective = field(default="rapid", metadata={"help": "rapid, pg, grpo or dapo"})
    H: int = field(default=4, metadata={"help": "Optimizer steps on one inference batch."})
    n_step: int = field(default=32, metadata={"help": "Completions an optimizer step."})
    eta: float = field(default=2.0, metadata={"help": "Upper bound of importance weights."})
    clip: Literal["advantage", "both"] = field(
        default="both", metadata={"help": "Where weights are clipped: advantage or both."}
    )
    dynamic_sampling_rounds: int = field(
        default=1, metadata={"help": "Sampling rounds to replace groups without signal."}
    )
    sampling_batch_size: int | None = field(
        default=None, metadata={"help": "Completions sampled at a time; None: all at once."}
    )
    sampler_logp: bool = field(
        default=True, metadata={"help": "Take log mu from the sampler where it is exact."}
    )
    # GRPOConfig's defaults that would change the paper's algorithms.
    scale_rewards: str = field(default="none", metadata={"help": "Advantages are the objective's."})
    beta: float = field(default=0.0, metadata={"help": "KL coefficient (objective grpo)."})
    vllm_importance_sampling_correction: bool = field(
        default=False, metadata={"help": "TRL's correction would weigh the loss a second time."}
    )

    def __post_init__(self):
        self._check()
        self.generation_batch_size = self.H * self.n_step
        self.steps_per_generation = None
        super().__post_init__()
        if self.steps_per_generation % self.H:
            raise ValueError(
                f"n_step={self.n_step} completions cannot be split into passes of "
                f"per_device_train_batch_size={self.per_device_train_batch_size} on "
                f"{self.world_size} process(es): make n_step a multiple of their product"
            )
        self.gradient_accumulation_steps = self.steps_per_generation // self.H

    def _check(self) -> None:
        group = self.num_generations
        micro = self.per_device_train_batch_size
        wrong = [
            (
                self.H < 1,
                f"H={self.H}: at least one step is taken on an inference batch; set H >= 1",
            ),
            (not self.eta > 0, f"eta={self.eta}: a bound of weights is positive; set eta > 0"),
            (
                micro % group,
                f"per_device_train_batch_size={micro} would tear groups of num_generations={group} "
                f"apart, and a group's baseline needs all of it; make it a multiple of {group}",
            ),
            (
                self.n_step < 1 or self.n_step % micro,
                f"n_step={self.n_step} is not a multiple of per_device_train_batch_size={micro}; "
                "change one of them",
            ),
            (
                self.num_iterations != 1,
                f"num_iterations={self.num_iterations}: each completion is used once; set it to 1 "
                "and raise H instead",
            ),
            (
                self.objective == "pg" and self.H > 1,
                f"objective='pg' is on-policy, but H={self.H}; set H=1 or objective='rapid'",
            ),
            (
                self.beta and self.objective not in USES_KL,
                f"beta={self.beta}: objective='{self.objective}' has no KL term; set beta=0",
            ),
            (
                self.H > 1 and self._truncates(),
                "importance weights need the policy's own distribution, but top_p, top_k or min_p "
                "truncates sampling; set top_p=1, top_k=0 and min_p=None, or H=1",
            ),
            (
                self.sampling_batch_size is not None and self.sampling_batch_size < 1,
                f"sampling_batch_size={self.sampling_batch_size}: set it to at least 1, or to None",
            ),
            (
                self.use_vllm and (self.sampling_batch_size or 0) % group,
                f"sampling_batch_size={self.sampling_batch_size}: vLLM samples whole groups; make it "
                f"a multiple of num_generations={group}",
            ),
        ]
        for is_wrong, message in wrong:
            if is_wrong:
                raise ValueError(message)

    def _truncates(self) -> bool:
        return self.top_p < 1 or bool(self.top_k) or bool(self.min_p)
