"""RapidConfig: TRL's GRPOConfig with the parameters of the paper, such as H, n_step and eta."""

from dataclasses import dataclass, field, fields
from inspect import cleandoc
from textwrap import TextWrapper
from typing import Any

import torch
from trl import GRPOConfig

from rapid.algorithms import RAPID
from rapid.algorithms.base import Algorithm, Parameters
from rapid.algorithms.naive_grpo import NaiveGrpoSection
from rapid.algorithms.rapid import Baseline, Clip, RapidParameters
from rapid.algorithms.training_parameters import TrainingParameters
from rapid.training.contradictions import SignalColumn, find_contradictions
from rapid.training.memory import AUTO
from rapid.training.precision import measure_shared_rates
from rapid.training.trl.objective import (
    TRL,
    TRL_LOSS_FIELDS,
    objectives,
    resolve_defaults,
    resolve_objective,
)
from rapid.training.trl.sizes import resolve_sizes, set_trl_sizes


def option(default: Any, help: str) -> Any:
    """Return a field of RapidConfig with a text for its docstring and for command lines."""
    return field(default=default, metadata={"help": help})


def parameter(section: type[Parameters], name: str, *default: Any, note: str = "") -> Any:
    """Return a field of RapidConfig that is also a parameter of params.yaml, with its description.

    Args:
        section: the class that declares the parameter.
        default: the default here, if it differs from the parameter's.
        note: text to add to the description.
    """
    declared = section.model_fields[name]
    (value,) = default or (declared.default,)
    return option(value, f"{declared.description} {note}".strip())


@dataclass
class RapidConfig(GRPOConfig):
    """Configuration of `RapidTrainer`: all fields of `GRPOConfig`, and the fields below.

    An inference batch is H * n_step completions that are sampled at once. It is used for H
    optimizer steps, each on a mini-batch of n_step completions, which is run in micro-batches (one
    forward and backward pass each). With `reuse` these H steps are repeated. pi is the policy, and
    mu the behaviour policy that sampled. `num_generations` is N_group, the completions of a prompt
    (a group), and must divide n_step. Processes sample equal parts of an inference batch, and
    divide the groups of each step. If there are fewer groups than processes, they divide the
    completions.

    A field whose type does not include None but whose default is None gets a value when the
    configuration is created.

    If n_step and H are not given, they follow from TRL's batch sizes as in GRPOTrainer:

        n_step = per_device_train_batch_size * gradient_accumulation_steps * processes
        H = steps_per_generation * num_iterations / gradient_accumulation_steps,
            or generation_batch_size * num_iterations / n_step

    With other batch sizes of TRL but none of steps_per_generation, num_iterations and
    generation_batch_size, H is 1, as GRPOTrainer then samples for each step. Unlike in GRPOTrainer,
    num_iterations makes the inference batch larger; `reuse` does what num_iterations does there.
    Afterwards TRL's fields have the values that follow from n_step and H.

    skip_zero_groups, pack, reuse_logp and share_prefill save time and do not change the gradient.
    Each can be switched off to measure what it saves.

    Raises:
        ValueError: settings contradict each other. The message says what to change.
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
    reuse: int = parameter(TrainingParameters, "reuse")
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
        note="It is a number per process; None samples the whole inference batch at once. "
        "With vLLM it is a multiple of num_generations.",
    )
    grading_workers: int = option(
        0,
        "Threads that call the reward functions for one completion at a time, while other "
        "completions are still being sampled; 0 calls them with the whole batch after "
        "sampling. For reward functions that wait for something (a sandbox, a prover, a "
        "server) and do not compare completions.",
    )
    reward_timeout: float | None = option(
        None,
        "Time limit in seconds for a call of a reward function: with grading_workers for one "
        "completion, otherwise for the whole batch. If a call takes longer, its completions "
        "are not graded, their groups are skipped, and training goes on. Their share is "
        "logged as rewards/NAME/timed_out. Three consecutive timeouts (with grading_workers, "
        "three times num_generations) end the run with an error that names the function. The "
        "call itself is not killed: see docs/rewards.md. None means no limit.",
    )
    skip_zero_groups: bool = option(
        True,
        "Skip groups whose contribution to the gradient is exactly zero. The loss is "
        "still divided by N_step, and the number of optimizer steps stays.",
    )
    pack: bool = option(
        True,
        "Fill a micro-batch with completions of similar length, up to token_budget, and "
        "pad them to the longest of them only. False takes micro_batch_size completions "
        "in order, padded to the longest completion of the inference batch.",
    )
    token_budget: int | str | None = option(
        None,
        "Largest number of tokens in a micro-batch, with prompts and padding; a single "
        "completion may have more. None is micro_batch_size times the tokens of the "
        "longest prompt and the longest completion in the inference batch. "
        '"auto" is as many as memory allows: micro-batches of the longest possible '
        "completions are tried before the first step.",
    )
    reuse_logp: bool = option(
        True,
        "Reuse log mu where it is known: in the first step on an inference batch from "
        "the policy's own forward pass, in later steps from the sampler, if it computes "
        "in float32 like the policy and can share prompts. Otherwise another forward "
        "pass computes it.",
    )
    trust_sampler: bool | None = parameter(TrainingParameters, "trust_sampler")
    precision: str | None = option(
        None,
        'Sets bf16: "float32", "bfloat16" or "auto". '
        f"{TrainingParameters.model_fields['precision'].description} None leaves it to bf16.",
    )
    use_rollout_logps: bool = option(
        False,
        "Use the `logprobs` that rollout_func returns as log mu in all steps. Set it for "
        "completions that were sampled earlier, or by another policy; they are the log-probs "
        "at the temperature of sampling. False computes log mu from the policy, as if it had "
        "just sampled the completions.",
    )
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
        "model caches more than keys and values or has virtual tokens, or with gradient "
        "checkpointing, with which models return no cache.",
    )
    # Fields of GRPOConfig with another default here: TRL's would change the paper's algorithms.
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
        None, "None is True with trl, else False: importance weights would count twice."
    )
    per_device_train_batch_size: int = option(
        None,
        "Completions per forward and backward pass of each process, used to set "
        "n_step; afterwards each process's share of n_step.",
    )

    def __new__(cls, *_: Any, **named: Any) -> "RapidConfig":
        """Record in `explicit` which fields the caller passed, also those with a default value.

        If all fields of TRL's loss are passed, as `dataclasses.replace` and parsers of command
        lines do, none of them is taken as a choice, and `explicit` is empty. `origins` says where
        values come from that are not passed.
        """
        config = super().__new__(cls)
        vars(config)["explicit"] = set() if {*TRL_LOSS_FIELDS} <= {*named} else {*named}
        vars(config)["origins"] = {}
        return config

    def __post_init__(self) -> None:
        resolve_objective(self)
        if self.objective not in (names := objectives()):
            raise ValueError(f"objective={self.objective!r}: set it to one of {', '.join(names)}")
        self._move_parameters_to_fields()
        _ = self.device  # sets up the processes, so that `world_size` is known
        processes = self.world_size
        resolve_sizes(self, processes)
        resolve_defaults(self)
        if wrong := [*find_contradictions(self, processes)]:
            raise ValueError("\n".join(wrong))
        if self.precision is not None:
            self._set_precision()
        # TRL's default is bf16 everywhere. Here it is bf16 only on GPUs that support it.
        if self.bf16 is None and not self.fp16:
            self.bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        set_trl_sizes(self, processes, super().__post_init__)

    @classmethod
    def of(cls, config: GRPOConfig | None) -> "RapidConfig":
        """Return a RapidConfig: the given one, or one made from a GRPOConfig.

        Settings of a GRPOConfig that differ from TRL's defaults are taken over. All other fields
        have the defaults of this class.

        Raises:
            TypeError: `config` is neither.
            ValueError: the GRPOConfig has a setting that RapidConfig refuses.
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
        del changed["generation_batch_size"]  # GRPOConfig computed it from steps_per_generation
        return cls(**changed | {"per_device_train_batch_size": config.per_device_train_batch_size})

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm that `objective` names."""
        return objectives()[self.objective]

    @property
    def steps_per_batch(self) -> int:
        """The optimizer steps on an inference batch: H * reuse."""
        return self.H * self.reuse

    @property
    def uses_trl_loss(self) -> bool:
        """Return whether the loss is GRPOTrainer's own."""
        return self.algorithm is TRL

    @property
    def settings(self) -> Parameters | None:
        """The parameters of the objective, from the fields here and from `parameters`."""
        if not (kind := self.algorithm.parameters):
            return None
        values = {
            name: getattr(self, field_name)
            for field_name, name in self.algorithm.parameters_by_config_field.items()
            if field_name in vars(self)
        }
        return kind(**self.algorithm.defaults | values | self.parameters)

    def _set_precision(self) -> None:
        """Set `bf16` by `precision`, and `precision` to what was chosen."""
        if self.precision == AUTO:
            rates = measure_shared_rates(self.device)
            self.precision = rates.preferred
            vars(self)["origins"]["precision"] = str(rates)
        self.bf16 = self.precision == "bfloat16"

    def _move_parameters_to_fields(self) -> None:
        """Move entries of `parameters` that have a field here into that field."""
        field_names = {setting.name for setting in fields(self)}
        without_field: dict[str, Any] = {}
        for name, value in self.parameters.items():
            argument = self.algorithm.config_field_names.get(name, name)
            (vars(self) if argument in field_names else without_field)[argument] = value
        self.parameters = without_field


def _build_args_section() -> str:
    """Return the section Args of RapidConfig's docstring, from the help text of each field."""
    wrapper = TextWrapper(100, initial_indent=" " * 4, subsequent_indent=" " * 8)
    return "\n".join(
        wrapper.fill(f"{setting.name}: {setting.metadata['help']}")
        for setting in fields(RapidConfig)
        if setting.name in RapidConfig.__annotations__
    )


# Python 3.13 removes the indentation of docstrings, and earlier versions keep it.
RapidConfig.__doc__ = cleandoc(RapidConfig.__doc__ or "").replace(
    "Raises:", f"Args:\n{_build_args_section()}\n\nRaises:"
)
# Without this, `inspect.signature(RapidConfig)` would show the arguments of `__new__`.
RapidConfig.__new__.__wrapped__ = RapidConfig.__init__  # type: ignore[attr-defined]
