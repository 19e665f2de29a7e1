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
from rapid.training.contradictions import SignalColumn, find_contradictions, read_parameters
from rapid.training.memory import AUTO
from rapid.training.precision import measure_and_broadcast_rates
from rapid.training.trl import TRL_LOSS_FIELDS
from rapid.training.trl.accelerator_config import read_accelerator_config
from rapid.training.trl.objective import TRL, get_objectives, resolve_defaults, resolve_objective
from rapid.training.trl.sizes import resolve_sizes, set_trl_sizes


def define_field(default: Any, help: str) -> Any:
    """Return a field of RapidConfig with a text for its docstring and for command lines."""
    return field(default=default, metadata={"help": help})


def define_parameter(section: type[Parameters], name: str, *default: Any, note: str = "") -> Any:
    """Return a field of RapidConfig for a parameter of params.yaml, with the same description.

    Args:
        section: the class that declares the parameter.
        name: the parameter's name.
        default: the field's default, if it differs from the parameter's.
        note: text to add to the parameter's description.
    """
    declaration = section.model_fields[name]
    (value,) = default or (declaration.default,)
    return define_field(value, f"{declaration.description} {note}".strip())


@dataclass
class RapidConfig(GRPOConfig):
    """Configuration of `RapidTrainer`: all fields of `GRPOConfig`, and the fields below.

    An inference batch is H * n_step completions that are sampled at once. It is used for H
    optimizer steps, each on a mini-batch of n_step completions, which is run in micro-batches (one
    forward and backward pass each). With `reuse` these H steps are repeated. pi is the policy, and
    mu the behaviour policy, which sampled the completions. `num_generations` is N_group, the number
    of completions of a prompt (together a group), and must divide n_step. Processes sample equal
    parts of an inference batch, and divide the groups of each step among themselves. If there are
    fewer groups than processes, they divide the completions of the groups instead.

    If a field's default is None but its type does not include None, the field gets a value when the
    configuration is created.

    If n_step and H are not set, they follow from TRL's batch sizes as in GRPOTrainer:

        n_step = per_device_train_batch_size * gradient_accumulation_steps * processes
        H = steps_per_generation * num_iterations / gradient_accumulation_steps,
            or generation_batch_size * num_iterations / n_step

    If only other batch sizes of TRL are set (none of steps_per_generation, num_iterations and
    generation_batch_size), H is 1, because GRPOTrainer then samples for each step. Unlike in
    GRPOTrainer, num_iterations makes the inference batch larger. To use each completion several
    times, as num_iterations does in GRPOTrainer, set `reuse`. When n_step and H are known, TRL's
    batch sizes are set to the values that follow from them.

    skip_zero_groups, pack, reuse_logp and share_prefill save work and change the gradient only by
    rounding. They can be switched off to measure how much time each saves.

    Raises:
        ValueError: a value is not allowed, or settings contradict each other. The message says what
            to change.
    """

    objective: str = define_field(
        None,
        "Name of an RL algorithm in `rapid.algorithms`, or "
        '"trl" for GRPOTrainer\'s own loss with all its settings. None means rapid. But if a '
        "setting of GRPOTrainer's loss is passed, even with TRL's default value, None means trl, "
        "and a warning is logged. Values with which rapid trains anyway, such as "
        'scale_rewards="none", do not count.',
    )
    parameters: dict | str | None = field(
        default_factory=dict,
        metadata={
            "help": "Parameters of the objective, by name, also as JSON. A parameter that is also "
            "a field of this class sets the field."
        },
    )
    H: int = define_field(
        None,
        "Optimizer steps per inference batch, N_inference / N_step. With None it follows from "
        "TRL's batch sizes if they are set, else it is 4.",
    )
    n_step: int = define_field(
        None,
        "N_step, completions per optimizer step, over all processes. With None it follows from "
        "TRL's batch sizes if they are set, else it is 32.",
    )
    reuse: int = define_parameter(TrainingParameters, "reuse")
    eta: float = define_parameter(RapidParameters, "eta", RAPID.defaults["eta"])
    clip: Clip = define_parameter(RapidParameters, "clip", RAPID.defaults["clip"])  # noqa: RUF009 - a field
    baseline: Baseline = define_parameter(RapidParameters, "baseline")  # noqa: RUF009 - a field
    weighted: bool = define_parameter(RapidParameters, "weighted")
    micro_batch_size: int | str | None = define_parameter(
        TrainingParameters,
        "micro_batch",
        None,
        note="With pack=False it is the largest number of completions in a pass. None is "
        "per_device_train_batch_size if that is set, else 8.",
    )
    dynamic_sampling_rounds: int = define_field(
        1,
        "Largest number of sampling rounds for an inference batch. Each round after the first "
        "replaces groups whose rewards are all equal by groups of other prompts (DAPO). See "
        "dynamic_sampling_by.",
    )
    dynamic_sampling_by: SignalColumn = define_field(  # noqa: RUF009 - a field
        "rewards",
        "Which values have to differ within a group, so that it is kept and counts as signal "
        'in the metrics: "rewards", the weighted sum of all reward functions, or '
        '"accuracy", the first reward function alone (so that DAPO\'s penalty on length '
        "is not a signal). A group that the first function does not grade is judged by rewards.",
    )
    sampling_batch_size: int | None = define_parameter(
        NaiveGrpoSection,
        "sampling_batch",
        None,
        note="The number is per process; None samples the whole inference batch at once. "
        "With vLLM it must be a multiple of num_generations.",
    )
    grading_workers: int = define_field(
        0,
        "Threads that call the reward functions for one completion at a time, while other "
        "completions are still being sampled; 0 calls them with the whole batch after "
        "sampling. Use it for reward functions that wait for something (a sandbox, a prover, a "
        "server) and do not compare completions.",
    )
    reward_timeout: float | None = define_field(
        None,
        "Time limit in seconds for a call of a reward function, which grades one completion with "
        "grading_workers, and otherwise the whole batch. If a call takes longer, its completions "
        "are not graded, their groups are skipped, and training goes on. The share of these "
        "completions is logged as rewards/NAME/timed_out. Three consecutive timeouts (with "
        "grading_workers, three times num_generations) end the run with an error that names the "
        "function. The call itself is not killed: see docs/rewards.md. None means no limit.",
    )
    skip_zero_groups: bool = define_field(
        True,
        "Skip groups whose contribution to the gradient is exactly zero. The loss is "
        "still divided by N_step, and the number of optimizer steps does not change.",
    )
    pack: bool = define_field(
        True,
        "Fill a micro-batch with completions of similar length, up to token_budget, and "
        "pad them to the longest of them only. False takes micro_batch_size completions "
        "in order, padded to the longest completion of the inference batch.",
    )
    token_budget: int | str | None = define_field(
        None,
        "Largest number of tokens in a micro-batch, with prompts and padding; a single "
        "completion may have more. None is micro_batch_size times the tokens of the "
        "longest prompt and the longest completion in the inference batch. "
        '"auto" is as many as memory allows: micro-batches of the longest possible '
        "completions are tried before the first step. With pack=False a number has no effect.",
    )
    reuse_logp: bool = define_field(
        True,
        "Do not compute log mu in an extra forward pass if it is known already. In the first step "
        "on an inference batch it is log pi from the policy's own forward pass. In later steps it "
        "is the sampler's, if the completions of a prompt can share its computation in this model "
        "(see share_prefill, whose value does not matter), and if sampler and policy compute in "
        "float32 or trust_sampler allows it.",
    )
    trust_sampler: bool | None = define_parameter(TrainingParameters, "trust_sampler")
    precision: str | None = define_field(
        None,
        f'{TrainingParameters.model_fields["precision"].description} "float32", "bfloat16" and '
        '"auto" set bf16, and None keeps bf16 as it is.',
    )
    use_rollout_logps: bool = define_field(
        False,
        "Use the `logprobs` that rollout_func returns as log mu in all steps. Set it for "
        "completions that were sampled earlier, or by another policy; the values have to be "
        "log-probs at the temperature of sampling. False computes log mu from the policy, as if it "
        "had just sampled the completions.",
    )
    max_sampler_mismatch: float | None = define_field(
        None,
        "Largest mean difference, in nats per token, between the sampler's log pi and that of the "
        "policy's forward pass. If it is exceeded, training stops with an error after "
        "its first inference batch. None is the difference that rounding may cause, with a margin: "
        "0.01 in float32, else 0.2, divided by the temperature if that is below 1.",
    )
    share_prefill: bool | None = define_field(
        None,
        "Compute a group's prompt once, in sampling and in training. None means True, with an "
        "exception: in training with one process on a GPU, sharing can be slower, so both ways are "
        "timed once and the faster one is used. With full_determinism there is no exception. "
        "Prompts are not shared if the model caches more than keys and values or has virtual "
        "tokens, nor with gradient checkpointing, with which models return no cache.",
    )
    # Fields of GRPOConfig with another default, because TRL's would change the paper's algorithms.
    scale_rewards: str = define_field(
        None,
        '"group" divides advantages by the group\'s standard deviation, "none" does not. '
        'None is the value that the objective uses; with trl it is "group".',
    )
    router_aux_loss_coef: float | None = define_field(
        None,
        "Weight of the loss that balances experts. With None it is the weight in the model's own "
        "configuration if the objective is trl, else 0.",
    )
    beta: float = define_field(0.0, "KL coefficient, for objectives with a KL term.")
    disable_dropout: bool = define_field(
        None,
        "Disable dropout, also LoRA's. With dropout, log pi and log mu come from "
        "different networks, so that importance weights are noisy. None is True, except with "
        "trl, H = 1 and use_rollout_logps=False.",
    )
    vllm_importance_sampling_correction: bool = define_field(
        None,
        "Whether TRL corrects the loss for the difference between vLLM's and the policy's "
        "log-probs. None is True with trl and use_rollout_logps=False, else False, because "
        "importance weights would be applied twice.",
    )
    per_device_train_batch_size: int = define_field(
        None,
        "As passed: completions per forward and backward pass of each process, from which n_step "
        "follows if it is None. In the configuration that is created: each process's share of "
        "n_step.",
    )

    def __new__(cls, *_: Any, **named: Any) -> "RapidConfig":
        """Record in `explicit` the names of the fields that the caller passes.

        `dataclasses.replace` and parsers of command lines pass all fields, whether or not the user
        has set them. So if all fields of TRL's loss are passed, `explicit` is empty. `origins` is
        filled later: for some fields that were not passed, it says where their values come from.
        """
        config = super().__new__(cls)
        vars(config)["explicit"] = set() if {*TRL_LOSS_FIELDS} <= {*named} else {*named}
        vars(config)["origins"] = {}
        return config

    def __post_init__(self) -> None:
        resolve_objective(self)
        if self.objective not in (names := get_objectives()):
            message = f"objective={self.objective!r}: set it to one of {', '.join(names)}"
            name, _, H = str(self.objective).partition("-H")
            if name in names and H.isdecimal():  # a name of the pipeline, such as rapid-H4
                message = f"objective={self.objective!r}: set objective={name!r}, H={H}"
            raise ValueError(message)
        contradictions = self._move_parameters_to_fields()
        self.accelerator_config = read_accelerator_config(self.accelerator_config)
        _ = self.device  # sets up the processes, after which `world_size` is known
        processes = self.world_size
        resolve_sizes(self, processes)
        resolve_defaults(self)
        if messages := [*contradictions, *find_contradictions(self, processes)]:
            raise ValueError("\n".join(messages))
        if self.precision is not None:
            self._set_precision()
        # TRL's default is bf16 everywhere. Here it is bf16 only on GPUs that support it.
        if self.bf16 is None and not self.fp16:
            uses_gpu = torch.cuda.is_available() and not self.use_cpu
            self.bf16 = uses_gpu and torch.cuda.is_bf16_supported()
        set_trl_sizes(self, processes, super().__post_init__)

    @classmethod
    def of(cls, config: GRPOConfig | None) -> "RapidConfig":
        """Return `config` as a RapidConfig, converted if it is a GRPOConfig; None means defaults.

        Settings of a GRPOConfig that differ from TRL's defaults are kept, and n_step and H follow
        from its batch sizes as in GRPOTrainer, also if these are TRL's defaults (H is then 1). All
        other fields have the defaults of this class. Attributes that GRPOConfig does not have, as
        a subclass may, are kept.

        Raises:
            TypeError: `config` is of another type.
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
        # Passed even if it is TRL's default, so that n_step and H follow from TRL's batch sizes.
        sizes = {"per_device_train_batch_size": config.per_device_train_batch_size}
        converted = cls(**changed | sizes)
        for name, value in vars(config).items():  # a callback may read what a subclass has added
            vars(converted).setdefault(name, value)
        return converted

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm that `objective` names."""
        return get_objectives()[self.objective]

    @property
    def steps_per_batch(self) -> int:
        """The optimizer steps on an inference batch: H * reuse."""
        return self.H * self.reuse

    @property
    def is_off_policy(self) -> bool:
        """Return whether weights may differ from 1: in later steps, or by use_rollout_logps."""
        return self.steps_per_batch > 1 or self.use_rollout_logps

    @property
    def uses_trl_loss(self) -> bool:
        """Return whether the loss is GRPOTrainer's own."""
        return self.algorithm is TRL

    @property
    def settings(self) -> Parameters | None:
        """The parameters of the objective, from the fields of this class and from `parameters`."""
        if not (parameters_class := self.algorithm.parameters):
            return None
        values = {
            name: getattr(self, field_name)
            for field_name, name in self.algorithm.parameters_by_config_field.items()
            if field_name in vars(self)
        }
        parameters: Any = self.parameters  # a dictionary, after `__post_init__`
        return parameters_class(**self.algorithm.defaults | values | parameters)

    def _set_precision(self) -> None:
        """Replace a `precision` of "auto" by the faster precision, then set `bf16` accordingly."""
        if self.precision == AUTO:
            rates = measure_and_broadcast_rates(self.device)
            self.precision = rates.preferred_precision
            vars(self)["origins"]["precision"] = str(rates)
        self.bf16 = self.precision == "bfloat16"

    def _move_parameters_to_fields(self) -> list[str]:
        """Move each entry of `parameters` for which this class has a field into that field.

        Returns:
            A message for each entry whose field was set to another value. If it is not known which
            fields were passed (see `__new__`), a value that is not the default counts as set.

        Raises:
            ValueError: `parameters` is not a dictionary.
        """
        parameters = read_parameters(self.parameters)
        defaults = {setting.name: setting.default for setting in fields(self)}
        remaining_parameters: dict[str, Any] = {}
        messages = []
        for name, value in parameters.items():
            field_name = self.algorithm.config_field_names.get(name, name)
            if field_name not in defaults:
                remaining_parameters[field_name] = value
                continue
            present = getattr(self, field_name)
            is_set = field_name in vars(self)["explicit"] or present != defaults[field_name]
            if is_set and present not in (None, value):
                messages.append(
                    f"parameters={{{name!r}: {value!r}}} contradicts {field_name}={present!r}: "
                    "set only one of them"
                )
            vars(self)[field_name] = value
        self.parameters = remaining_parameters
        return messages


def _build_args_section() -> str:
    """Return the section Args of RapidConfig's docstring, from the help texts of its fields."""
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
