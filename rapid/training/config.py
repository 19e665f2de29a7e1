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
    FIELDS,
    TRL,
    objectives,
    take_defaults,
    take_objective,
)
from rapid.training.trl.sizes import set_sizes, take_sizes


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
        "Name of an RL algorithm in `rapid.algorithms`, all of which share one loop, or "
        '"trl" for GRPOTrainer\'s own loss with all its settings. None is rapid, unless a '
        "setting of GRPOTrainer's loss is passed, even with TRL's default: then it is "
        "trl, with a warning.",
    )
    parameters: dict = field(
        default_factory=dict,
        metadata={
            "help": "Parameters of the objective, by name; those that are fields of this class "
            "set the field."
        },
    )
    H: int = option(
        None,
        "Optimizer steps per inference batch, N_inference / N_step. None follows from "
        "TRL's batch sizes if they are set, else it is 4.",
    )
    n_step: int = option(
        None,
        "N_step, completions per optimizer step, over all processes. None follows from "
        "TRL's batch sizes if they are set, else it is 32.",
    )
    eta: float = parameter(RapidParameters, "eta", RAPID.defaults["eta"])
    clip: Clip = parameter(RapidParameters, "clip", RAPID.defaults["clip"])  # noqa: RUF009 - a field
    baseline: Baseline = parameter(RapidParameters, "baseline")  # noqa: RUF009 - a field
    weighted: bool = parameter(RapidParameters, "weighted")
    micro_batch_size: int | str | None = parameter(
        TrainingParameters,
        "micro_batch",
        None,
        note='None is per_device_train_batch_size (8), "auto" means the same as '
        'token_budget="auto".',
    )
    dynamic_sampling_rounds: int = option(
        1,
        "With 1, the sampled groups are used as they are. With more, groups whose "
        "rewards are all equal are sampled again with other prompts, in up to that many "
        "rounds (DAPO). See dynamic_sampling_by.",
    )
    dynamic_sampling_by: SignalColumn = option(  # noqa: RUF009 - a field
        "rewards",
        "What has to differ within a group for it to be kept and to count as signal in "
        'the metrics: "rewards", the weighted sum of all reward functions, or '
        '"accuracy", the first reward function alone (a penalty on length, as in DAPO, '
        "is then no signal).",
    )
    sampling_batch_size: int | None = parameter(
        NaiveGrpoSection,
        "sampling_batch",
        None,
        note="Each process samples so many; None samples the whole inference batch at "
        "once. With vLLM it is a multiple of num_generations.",
    )
    grading_workers: int = option(
        0,
        "Threads that call the reward functions for one completion at a time, while "
        "others are still being sampled; 0 calls them with the whole batch after "
        "sampling. For rewards that wait for something (a sandbox, a prover, a server) "
        "and do not compare completions.",
    )
    reward_timeout: float | None = option(
        None,
        "Seconds for a call of a reward function: for one completion with grading_workers, "
        "else for the whole batch. A call that takes longer is given up: its completions are "
        "not graded, their groups are skipped, rewards/NAME/timed_out has their share, and "
        "training goes on. After three such calls in a row (with grading_workers, three "
        "times num_generations) the run ends with the function's name. A thread cannot be "
        "killed: docs/rewards.md says what that means. None waits for ever.",
    )
    skip_zero_groups: bool = option(
        True,
        "Skip groups whose contribution to the gradient is exactly zero. The loss is "
        "still divided by N_step, and the number of optimizer steps stays.",
    )
    pack: bool = option(
        True,
        "Fill a micro-batch with completions of similar length, up to token_budget, and "
        "cut it to its longest. False takes micro_batch_size completions in order, as "
        "wide as the inference batch.",
    )
    token_budget: int | str | None = option(
        None,
        "Largest number of tokens in a micro-batch, with prompts and padding; a single "
        "completion may have more. None is what micro_batch_size of the longest "
        'completions in the inference batch take. "auto" is as many as memory allows: '
        "micro-batches of the longest possible completions are tried before the first "
        "step.",
    )
    reuse_logp: bool = option(
        True,
        "Reuse log mu where it is known: in the first step on an inference batch from "
        "the policy's own forward pass, in later steps from the sampler, if it computes "
        "in float32 like the policy and can share prompts. Otherwise another forward "
        "pass computes it.",
    )
    trust_sampler: bool = parameter(TrainingParameters, "trust_sampler")
    max_sampler_mismatch: float | None = option(
        None,
        "Largest mean difference, in nats per token, between log pi in sampling and in "
        "the policy's forward pass. If it is exceeded, training stops after its first "
        "inference batch. None is what rounding explains, with a margin: 0.01 in "
        "float32, else 0.2, divided by the temperature if that is below 1.",
    )
    share_prefill: bool = option(
        True,
        "Compute a group's prompt once, in sampling and in training. Not done if the "
        "model keeps more of it than keys and values, has virtual tokens, or if gradient "
        "checkpointing keeps nothing.",
    )
    # GRPOConfig's defaults that would change the paper's algorithms.
    scale_rewards: str = option(
        None,
        '"group" divides advantages by the group\'s standard deviation, "none" does not. '
        'None is what the objective does; with trl it is "group".',
    )
    router_aux_loss_coef: float | None = option(
        None, "Weight of the loss that balances experts. None is the model's with trl, else 0."
    )
    beta: float = option(0.0, "KL coefficient, for objectives with a KL term.")
    disable_dropout: bool = option(
        None,
        "Disable dropout, also LoRA's. With dropout, log pi and log mu come from "
        "different networks, and importance weights are noise. None is True, except with "
        "trl and H = 1.",
    )
    vllm_importance_sampling_correction: bool = option(
        None, "None is True with trl, else False, as it would weigh the loss a second time."
    )
    per_device_train_batch_size: int = option(
        None,
        "Completions per forward and backward pass of each process, used to set "
        "n_step; afterwards each process's share of n_step.",
    )

    def __new__(cls, *_: Any, **named: Any) -> "RapidConfig":
        """Remember which fields are written out, be it with their default.

        Whoever passes all fields of TRL's loss (`dataclasses.replace`, a command line's parser)
        does not say by it which were meant.
        """
        config = super().__new__(cls)
        vars(config)["explicit"] = set() if {*FIELDS} <= {*named} else {*named}
        return config

    def __post_init__(self) -> None:
        take_objective(self)
        if self.objective not in (names := objectives()):
            raise ValueError(f"objective={self.objective!r}: set it to one of {', '.join(names)}")
        self._take_parameters()
        _ = self.device  # whose set-up says how many processes there are
        processes = self.world_size
        take_sizes(self, processes)
        take_defaults(self)
        if wrong := [*contradictions(self, processes)]:
            raise ValueError("\n".join(wrong))
        if self.bf16 is None and not self.fp16:  # TRL's default is bf16, which a laptop cannot do
            self.bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        set_sizes(self, processes, super().__post_init__)

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
    def trls_loss(self) -> bool:
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
