"""RapidConfig: TRL's GRPOConfig with the paper's letters."""

import math
from dataclasses import MISSING, dataclass, field, fields
from typing import Literal

import torch
from trl import GRPOConfig

from rapid.algorithms import ALGORITHMS, RAPID
from rapid.algorithms.base import Algorithm

# What GRPOConfig offers to shape its own loss. Here the objective says it all: set, it would be ignored.
DECIDED_BY_THE_OBJECTIVE = (
    "loss_type",
    "scale_rewards",
    "importance_sampling_level",
    "multi_objective_aggregation",
    "delta",
    "top_entropy_quantile",
    "off_policy_mask_threshold",
    "entropy_coef",
    "use_adaptive_entropy",
    "use_bias_correction_kl",
)


@dataclass
class RapidConfig(GRPOConfig):
    """Configuration of `RapidTrainer`; everything that `GRPOConfig` has, and:

    Args:
        objective: RAPID, or another RL algorithm of `rapid.algorithms` in the same loop, by name.
        parameters: of an objective whose parameters are no fields here; they can be read as if they
            were.
        H: optimizer steps on one inference batch, N_inference / N_step.
        n_step: N_step, completions an optimizer step, over all processes. `num_generations` is
            N_group, and divides it. Processes sample equal parts of the H * n_step completions of
            an inference batch, and divide a step's groups; where they are more than the groups, they
            divide the completions. TRL's batch sizes and accumulation steps follow from these: leave
            them unset.
        eta: RAPID's importance weights are clipped to at most eta.
        clip: "advantage" clips the weights in the advantage only (Algorithm 1 to the letter);
            "both" clips the weight in front of it too; "nowhere" clips none.
        baseline: "group" is Algorithm 1's, the weighted mean reward of the completion's group;
            "others" leaves the completion itself out, which is unbiased; "none" is without.
        weighted: False takes all importance weights for 1, for ablations.
        micro_batch_size: completions of one forward and backward pass, whole groups.
        dynamic_sampling_rounds: 1 takes the sampled groups as they are; more resamples, with other
            prompts, the groups whose rewards are all equal, up to that many rounds (DAPO).
        sampling_batch_size: completions sampled at a time, by each process; None samples the whole
            inference batch at once. With vLLM a multiple of `num_generations`.
        grading_workers: threads that call the reward functions, one completion at a time, while
            other completions are still being sampled; 0 calls them with the whole batch after it. For
            rewards that wait for something (a sandbox, a prover, a server) and look at one completion.

    Savings. None changes the gradient; each can be switched off, to measure it.

    Args:
        skip_zero_groups: run no group whose contribution to the gradient is exactly zero. N_step
            stays the divisor, and the optimizer steps.
        pack: fill a pass with completions of like length, up to `token_budget`, and cut it to its
            longest; else `micro_batch_size` completions in order, as wide as the inference batch.
        token_budget: padded tokens of a pass, prompts included; None is what `micro_batch_size` of
            the longest completions in the inference batch would take.
        reuse_logp: take log mu where it is known: from the policy's own pass in the first step on an
            inference batch, and later from the sampler, if it computes in float32 like the policy.
            Else another forward pass finds it.
        share_prefill: compute a group's prompt once, in sampling and in training. Not in training
            with gradient checkpointing, which keeps no prompt.
        reduce_metrics_once: reduce metrics once an optimizer step, not once a pass.
        sync_in_one_call: hand vLLM all weights in one call, not in one for each.

    Raises:
        ValueError: settings that contradict each other; the message says what to change.
    """

    objective: str = field(default=RAPID.name, metadata={"help": "An RL algorithm's name."})
    parameters: dict = field(default_factory=dict, metadata={"help": "Those that are no fields."})
    H: int = field(default=4, metadata={"help": "Optimizer steps on one inference batch."})
    n_step: int = field(default=32, metadata={"help": "Completions an optimizer step."})
    eta: float = field(default=2.0, metadata={"help": "Upper bound of importance weights."})
    clip: Literal["advantage", "both", "nowhere"] = field(
        default="advantage", metadata={"help": "Where weights are clipped."}
    )
    baseline: Literal["group", "others", "none"] = field(
        default="group", metadata={"help": "What is subtracted from a reward."}
    )
    weighted: bool = field(default=True, metadata={"help": "Importance weights; False: all are 1."})
    micro_batch_size: int = field(default=8, metadata={"help": "Completions of a pass."})
    dynamic_sampling_rounds: int = field(
        default=1, metadata={"help": "Sampling rounds to replace groups without signal."}
    )
    sampling_batch_size: int | None = field(
        default=None, metadata={"help": "Completions sampled at a time; None: all at once."}
    )
    grading_workers: int = field(
        default=0, metadata={"help": "Threads that grade while sampling goes on; 0: after it."}
    )
    skip_zero_groups: bool = field(default=True, metadata={"help": "Skip groups without gradient."})
    pack: bool = field(
        default=True, metadata={"help": "Fill passes by tokens, cut to the longest."}
    )
    token_budget: int | None = field(default=None, metadata={"help": "Padded tokens of a pass."})
    reuse_logp: bool = field(default=True, metadata={"help": "Do not compute log mu again."})
    share_prefill: bool = field(default=True, metadata={"help": "Compute a group's prompt once."})
    reduce_metrics_once: bool = field(default=True, metadata={"help": "Not in every pass."})
    sync_in_one_call: bool = field(default=True, metadata={"help": "All weights to vLLM at once."})
    # GRPOConfig's defaults that would change the paper's algorithms.
    scale_rewards: str = field(default="none", metadata={"help": "Advantages are the objective's."})
    beta: float = field(
        default=0.0, metadata={"help": "KL coefficient, where there is such a term."}
    )
    vllm_importance_sampling_correction: bool = field(
        default=False, metadata={"help": "TRL's correction would weigh the loss a second time."}
    )
    # These follow from n_step and H.
    per_device_train_batch_size: int | None = field(
        default=None, metadata={"help": "Follows: n_step over the number of processes, rounded up."}
    )

    def __post_init__(self):
        self._check()
        if self.bf16 is None and not self.fp16:  # TRL's default is bf16, which a laptop cannot do
            self.bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        processes = self.device and self.world_size  # the device's set-up says how many there are
        if self.H * self.n_step % processes:
            raise ValueError(
                f"H={self.H} * n_step={self.n_step} completions of an inference batch are not as many "
                f"on each of {processes} process(es): make H * n_step a multiple of {processes}"
            )
        follows = {
            "per_device_train_batch_size": math.ceil(self.n_step / processes),
            "gradient_accumulation_steps": 1,
            "steps_per_generation": self.H,
            "generation_batch_size": self.H * self.n_step,
        }
        for name, value in follows.items():
            if getattr(self, name) not in (None, value):
                raise ValueError(
                    f"{name}={getattr(self, name)}: it follows from n_step={self.n_step}, H={self.H} "
                    f"and {processes} process(es); leave it unset. micro_batch_size is the number of "
                    "completions in one forward and backward pass"
                )
            setattr(self, name, value)
        self.steps_per_generation = None  # TRL takes one of the two, and finds the other
        if self.n_step % processes:  # TRL checks steps; an inference batch is what processes share
            self.per_device_train_batch_size = self.generation_batch_size // processes
        super().__post_init__()
        vars(self).update(follows)

    def __getattr__(self, name: str):
        try:
            return self.__dict__["parameters"][name]
        except (KeyError, TypeError):
            raise AttributeError(name) from None

    @property
    def algorithm(self) -> Algorithm:
        """What `objective` names."""
        return ALGORITHMS[self.objective]

    def _check(self) -> None:
        known = [name for name, one in ALGORITHMS.items() if not one.imitates]
        if self.objective not in known:
            raise ValueError(f"objective={self.objective!r}: set it to one of {', '.join(known)}")
        group = self.num_generations
        wrong = [
            (
                self.H < 1,
                f"H={self.H}: at least one step is taken on an inference batch; set H >= 1",
            ),
            (not self.eta > 0, f"eta={self.eta}: a bound of weights is positive; set eta > 0"),
            (
                self.micro_batch_size < 1 or self.micro_batch_size % group,
                f"micro_batch_size={self.micro_batch_size} would tear groups of num_generations="
                f"{group} apart, and a group's baseline needs all of it; make it a multiple of {group}",
            ),
            (
                self.n_step < group or self.n_step % group,
                f"n_step={self.n_step} completions are not whole groups of num_generations={group}; "
                f"make it a multiple of {group}",
            ),
            (
                self.num_iterations != 1,
                f"num_iterations={self.num_iterations}: each completion is used once; set it to 1 "
                "and raise H instead",
            ),
            (
                self.beta and not self.algorithm.has_kl,
                f"beta={self.beta}: objective='{self.objective}' has no KL term; set beta=0",
            ),
            (
                self.H > 1 and self._samples_otherwise(),
                "importance weights need the policy's own distribution, but top_p, top_k, min_p or "
                "repetition_penalty changes what is sampled; set top_p=1, top_k=0, min_p=None and "
                "repetition_penalty=1, or H=1",
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
            (
                self.grading_workers < 0,
                f"grading_workers={self.grading_workers}: set it to 0 or more",
            ),
            (
                self.token_budget is not None and self.token_budget < 1,
                f"token_budget={self.token_budget}: set it to at least 1, or to None",
            ),
            (
                self.vllm_importance_sampling_correction,
                "vllm_importance_sampling_correction=True would weigh the loss a second time; leave "
                "it False",
            ),
        ]
        for is_wrong, message in wrong:
            if is_wrong:
                raise ValueError(message)
        for name, default in self._defaults(DECIDED_BY_THE_OBJECTIVE):
            if getattr(self, name) != default:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} shapes GRPOTrainer's loss, which RapidTrainer "
                    f"does not use: objective='{self.objective}' decides; leave it at {default!r}"
                )

    def _defaults(self, names):
        for one in fields(self):
            if one.name in names:
                default = one.default
                yield one.name, one.default_factory() if default is MISSING else default

    def _samples_otherwise(self) -> bool:
        truncated = self.top_p < 1 or bool(self.top_k) or bool(self.min_p)
        return truncated or self.repetition_penalty != 1
