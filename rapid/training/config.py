"""RapidConfig: TRL's GRPOConfig with the paper's letters."""

from dataclasses import dataclass, field, fields
from textwrap import TextWrapper
from typing import Any

import torch
from trl import GRPOConfig

from rapid.algorithms import RAPID
from rapid.algorithms.base import Algorithm, Parameters
from rapid.algorithms.naive_grpo import NaiveGrpoSection
from rapid.algorithms.rapid import Baseline, Clip, RapidParameters
from rapid.algorithms.training import TrainingParameters
from rapid.training.contradictions import SignalColumn, contradictions
from rapid.training.trl.objective import (
    TRL,
    TRL_LOSS_FIELDS,
    objectives,
    resolve_defaults,
    resolve_objective,
)
from rapid.training.trl.sizes import resolve_sizes, set_trl_sizes


def option(default: Any, help: str) -> Any:
    """Return a field of RapidConfig, with its text for `help` and for command lines."""
    return field(default=default, metadata={"help": help})


def parameter(section: type[Parameters], name: str, *default: Any, note: str = "") -> Any:
    """Return a field of RapidConfig that is a parameter of params.yaml, with its text.

    Args:
        default: another than the parameter's.
        note: what there is to say of it here only.
    """
    declared = section.model_fields[name]
    (value,) = default or (declared.default,)
    return option(value, f"{declared.description} {note}".strip())


@dataclass
class RapidConfig(GRPOConfig):
    """Configuration of `RapidTrainer`; everything that `GRPOConfig` has, and the fields below.

    `num_generations` is N_group, and divides n_step. Processes sample equal parts of the H * n_step
    completions of an inference batch, and divide a step's groups; where they are more than the
    groups, they divide the completions.

    Fields of one type whose default is None have a value once the configuration is made.

    Where n_step and H are not given, TRL's batch sizes set them to what GRPOTrainer would do:
        n_step = per_device_train_batch_size * gradient_accumulation_steps * processes
        H = steps_per_generation * num_iterations / gradient_accumulation_steps,
            or generation_batch_size * num_iterations / n_step
    GRPOTrainer's own default, without the last three, is H = 1: it samples for each step. Unlike
    there, a completion is used once: num_iterations makes the inference batch larger. Afterwards
    TRL's fields have the values that follow from n_step and H.

    Each of the savings can be switched off, to measure it; none changes the gradient. They are
    skip_zero_groups, pack, reuse_logp and share_prefill.

    Raises:
        ValueError: settings that contradict each other; the message says what to change.
    """

    objective: str = option(
        None,
        'The name of an RL algorithm of `rapid.algorithms`, in the same loop; or "trl", '
        "GRPOTrainer's own loss with all its settings. None is rapid, but where a setting of "
        "GRPOTrainer's loss is written out, be it TRL's default: then trl, with a warning.",
    )
    parameters: dict = field(
        default_factory=dict,
        metadata={"help": "Parameters of the objective by name; those that are fields set them."},
    )
    H: int = option(
        None,
        "Optimizer steps on one inference batch, N_inference / N_step. None is what TRL's batch "
        "sizes say, or 4.",
    )
    n_step: int = option(
        None,
        "N_step, completions per optimizer step, over all processes. None is what TRL's batch "
        "sizes say, or 32.",
    )
    eta: float = parameter(RapidParameters, "eta", RAPID.defaults["eta"])
    clip: Clip = parameter(RapidParameters, "clip", RAPID.defaults["clip"])  # noqa: RUF009 - a field
    baseline: Baseline = parameter(RapidParameters, "baseline")  # noqa: RUF009 - a field
    weighted: bool = parameter(RapidParameters, "weighted")
    micro_batch_size: int | str | None = parameter(
        TrainingParameters,
        "micro_batch",
        None,
        note='None is per_device_train_batch_size (8), "auto" the same as token_budget="auto".',
    )
    dynamic_sampling_rounds: int = option(
        1,
        "1 takes the sampled groups as they are; more resamples, with other prompts, the groups "
        "whose rewards are all equal, up to that many rounds (DAPO). See dynamic_sampling_by.",
    )
    dynamic_sampling_by: SignalColumn = option(  # noqa: RUF009 - a field
        "rewards",
        "What differs in a group that is kept, and counts as signal in the metrics: the weighted "
        'sum of all "rewards", or the "accuracy", which is what the first reward function returned '
        "(DAPO's penalty on length is then no signal).",
    )
    sampling_batch_size: int | None = parameter(
        NaiveGrpoSection,
        "sampling_batch",
        None,
        note="Each process samples as many; None is the whole inference batch at once. With vLLM a "
        "multiple of num_generations.",
    )
    grading_workers: int = option(
        0,
        "Threads that call the reward functions, one completion at a time, while others are still "
        "being sampled; 0 calls them with the whole batch after it. For rewards that wait for "
        "something (a sandbox, a prover, a server) and look at one completion.",
    )
    skip_zero_groups: bool = option(
        True,
        "Run no group whose contribution to the gradient is exactly zero. N_step stays the "
        "divisor, and the optimizer steps.",
    )
    pack: bool = option(
        True,
        "Fill a pass with completions of like length, up to token_budget, and cut it to its "
        "longest; else micro_batch_size completions in order, as wide as the inference batch.",
    )
    token_budget: int | str | None = option(
        None,
        "Padded tokens of a pass, prompts included, at most; one completion may have more. None is "
        "what micro_batch_size of the longest completions in the inference batch would take. "
        '"auto" is what memory allows: passes of the longest completions that may be sampled are '
        "tried before the first step.",
    )
    reuse_logp: bool = option(
        True,
        "Take log mu where it is known: from the policy's own pass in the first step on an "
        "inference batch, and later from the sampler, if it computes in float32 like the policy "
        "and can share prompts. Else another forward pass finds it.",
    )
    trust_sampler: bool = parameter(TrainingParameters, "trust_sampler")
    max_sampler_mismatch: float | None = option(
        None,
        "The mean difference, in nats a token, between log pi as sampled and as the policy's "
        "forward pass has it, beyond which training stops after its first inference batch. None is "
        "what rounding explains with a margin: 0.01 in float32, else 0.2, over the temperature if "
        "that is below 1.",
    )
    share_prefill: bool = option(
        True,
        "Compute a group's prompt once, in sampling and in training. Not where a model keeps more "
        "of it than keys and values, has virtual tokens, or gradient checkpointing keeps nothing.",
    )
    # GRPOConfig's defaults that would change the paper's algorithms.
    scale_rewards: str = option(
        None,
        'None is what the objective does with advantages: "group" (in standard deviations) or '
        '"none". With trl it is "group".',
    )
    router_aux_loss_coef: float | None = option(
        None, "Weight of a loss that balances experts. None is the model's with trl, else 0."
    )
    beta: float = option(0.0, "KL coefficient, where there is such a term.")
    disable_dropout: bool = option(
        None,
        "Leave dropout out, also LoRA's. With it, log pi and log mu are of different networks, and "
        "importance weights are noise. None is True, but for trl with H = 1.",
    )
    vllm_importance_sampling_correction: bool = option(
        None, "None is True with trl; else it would weigh the loss a second time."
    )
    per_device_train_batch_size: int = option(
        None, "Completions of a pass in each process, to set n_step; afterwards n_step's part."
    )

    def __new__(cls, *_: Any, **named: Any) -> "RapidConfig":
        """Remember which fields are written out, be it with their default.

        Whoever passes all fields of TRL's loss (`dataclasses.replace`, a command line's parser)
        does not say by it which were meant.
        """
        config = super().__new__(cls)
        vars(config)["explicit"] = set() if {*TRL_LOSS_FIELDS} <= {*named} else {*named}
        return config

    def __post_init__(self) -> None:
        resolve_objective(self)
        if self.objective not in (names := objectives()):
            raise ValueError(f"objective={self.objective!r}: set it to one of {', '.join(names)}")
        self._take_parameters()
        _ = self.device  # whose set-up says how many processes there are
        processes = self.world_size
        resolve_sizes(self, processes)
        resolve_defaults(self)
        if wrong := [*contradictions(self, processes)]:
            raise ValueError("\n".join(wrong))
        if self.bf16 is None and not self.fp16:  # TRL's default is bf16, which a laptop cannot do
            self.bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        set_trl_sizes(self, processes, super().__post_init__)

    @classmethod
    def of(cls, config: GRPOConfig | None) -> "RapidConfig":
        """Return a configuration as RapidTrainer needs it, made from a GRPOConfig if it is one.

        A GRPOConfig's settings are taken over, but for defaults, which are this class's.

        Raises:
            TypeError: it is neither.
            ValueError: GRPOConfig has a setting that RapidConfig refuses.
        """
        if config is None:
            return cls("rapid-output")  # a folder `rapid` would hide this package
        if isinstance(config, cls):
            return config
        if not isinstance(config, GRPOConfig):
            raise TypeError(f"args is a {type(config).__name__}: pass a RapidConfig")
        changed = {
            setting.name: getattr(config, setting.name)
            for setting in fields(GRPOConfig)
            if setting.init and getattr(config, setting.name) != setting.default
        }
        del changed["generation_batch_size"]  # which steps_per_generation says already
        return cls(**changed | {"per_device_train_batch_size": config.per_device_train_batch_size})

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm that `objective` names."""
        return objectives()[self.objective]

    @property
    def uses_trl_loss(self) -> bool:
        """Return whether the loss is GRPOTrainer's own."""
        return self.algorithm is TRL

    @property
    def settings(self) -> Parameters | None:
        """The objective's parameters: those that are fields here, and `parameters`."""
        if not (kind := self.algorithm.parameters):
            return None
        values = {
            name: getattr(self, field_name)
            for field_name, name in self.algorithm.fields.items()
            if field_name in vars(self)
        }
        return kind(**self.algorithm.defaults | values | self.parameters)

    def _take_parameters(self) -> None:
        """Set the fields of the parameters that have one, and keep the others."""
        field_names = {setting.name for setting in fields(self)}
        without_field: dict[str, Any] = {}
        for name, value in self.parameters.items():
            argument = self.algorithm.arguments.get(name, name)
            (vars(self) if argument in field_names else without_field)[argument] = value
        self.parameters = without_field


def _documented() -> str:
    """Return the fields of RapidConfig for its docstring, which are described beside defaults."""
    wrapper = TextWrapper(100, initial_indent=" " * 8, subsequent_indent=" " * 12)
    return "\n".join(
        wrapper.fill(f"{setting.name}: {setting.metadata['help']}")
        for setting in fields(RapidConfig)
        if setting.name in RapidConfig.__annotations__
    )


RapidConfig.__doc__ = (RapidConfig.__doc__ or "").replace(
    "    Raises:", f"    Args:\n{_documented()}\n\n    Raises:"
)
# `inspect.signature` looks at `__new__` before `__init__`.
RapidConfig.__new__.__wrapped__ = RapidConfig.__init__  # type: ignore[attr-defined]
