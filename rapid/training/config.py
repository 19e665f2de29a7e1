"""RapidConfig: TRL's GRPOConfig with the paper's letters."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from inspect import signature
from textwrap import TextWrapper
from typing import Any, Literal, get_args

import torch
from pydantic import ValidationError
from trl import GRPOConfig

from rapid.algorithms import RAPID
from rapid.algorithms.base import Algorithm, Parameters
from rapid.algorithms.rapid import Baseline, Clip, RapidParameters
from rapid.training.room import AUTO
from rapid.training.trl import DECIDED_BY_THE_OBJECTIVE
from rapid.training.trl.objective import (
    FIELDS,
    TRL,
    explicit_trl_settings,
    objectives,
    take_defaults,
    take_objective,
)
from rapid.training.trl.sizes import contradictions, set_sizes, take_sizes

AT_LEAST: dict[str, float] = {"H": 1, "sampling_batch_size": 1, "num_generations": 1}
AT_LEAST |= {"grading_workers": 0, "micro_batch_size": 1, "token_budget": 1}
AT_LEAST |= {"learning_rate": 0.0, "temperature": 1e-30, "max_sampler_mismatch": 0.0}
# Fields of sampling, and their values that leave the policy's distribution as it is; and arguments
# in generation_kwargs that do not change how a token is drawn, at any value.
NEUTRAL = {"top_p": (1,), "top_k": (0, -1), "min_p": (None, 0), "repetition_penalty": (1,)}
NEUTRAL |= {"vllm_structured_outputs_regex": (None,)}
HARMLESS = {"max_new_tokens", "max_tokens", "stop", "stop_strings", "stop_token_ids", "seed"}
HARMLESS |= {"use_cache", "cache_implementation"}
SignalColumn = Literal["rewards", "accuracy"]  # of a batch


def option(default: Any, help: str) -> Any:
    """Return a field of RapidConfig, with its text for `help` and for command lines."""
    return field(default=default, metadata={"help": help})


def parameter(name: str) -> Any:
    """Return the field of one of RAPID's parameters, with its default and its text."""
    known = RapidParameters.model_fields[name]
    default = RAPID.defaults.get(name, known.default)
    return option(default, known.description or "")


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
    eta: float = parameter("eta")
    clip: Clip = parameter("clip")  # noqa: RUF009 - a field
    baseline: Baseline = parameter("baseline")  # noqa: RUF009 - a field
    weighted: bool = parameter("weighted")
    micro_batch_size: int | str | None = option(
        None,
        "Completions of one forward and backward pass, at most: whole groups, or part of a group "
        'where one has more. None is per_device_train_batch_size (8). "auto" is token_budget='
        '"auto".',
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
    sampling_batch_size: int | None = option(
        None,
        "Completions sampled at a time, by each process; None samples the whole inference batch at "
        "once. With vLLM a multiple of num_generations.",
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
    trust_sampler: bool = option(
        False,
        "Let reuse_logp take log mu from a sampler in bfloat16 or float16, or vLLM's server, too. "
        "It is what was sampled from, but rounded apart from the policy's: by some thousandths of "
        "a nat a token, which add up over a completion.",
    )
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
        vars(config)["explicit"] = set() if {*FIELDS} <= {*named} else {*named}
        return config

    def __post_init__(self) -> None:
        take_objective(self)
        if self.objective not in (known := objectives()):
            raise ValueError(f"objective={self.objective!r}: set it to one of {', '.join(known)}")
        self._take_parameters()
        _ = self.device  # whose set-up says how many processes there are
        processes = self.world_size
        take_sizes(self, processes)
        take_defaults(self)
        if wrong := [*self._contradictions(processes)]:
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
        values = {one.name: getattr(config, one.name) for one in fields(config) if one.init}
        changed = {
            one.name: values[one.name]
            for one in fields(GRPOConfig)
            if one.init and values[one.name] != one.default
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
            name: getattr(self, at)
            for at, name in self.algorithm.fields.items()
            if at in vars(self)
        }
        return kind(**self.algorithm.defaults | values | self.parameters)

    def _take_parameters(self) -> None:
        """Set the fields of the parameters that have one, and keep the others."""
        names = {one.name for one in fields(self)}
        rest: dict[str, Any] = {}
        for name, value in self.parameters.items():
            argument = self.algorithm.arguments.get(name, name)
            (vars(self) if argument in names else rest)[argument] = value
        self.parameters = rest

    def _other_distributions(self) -> Iterator[str]:
        """Yield what makes log mu another distribution's than the policy's, and what to change."""
        if not self.disable_dropout:
            yield (
                "disable_dropout=False: log pi and log mu would be of different networks; set "
                "disable_dropout=True, or H=1"
            )
        if self.neftune_noise_alpha:
            yield (
                f"neftune_noise_alpha={self.neftune_noise_alpha}: log pi would have noise that log "
                "mu has not; leave it unset, or set H=1"
            )
        if changed := self.shaped_sampling():
            yield (
                f"importance weights need the policy's own distribution, but {', '.join(changed)} "
                "changes what is sampled; set top_p=1, top_k=0, min_p=None, repetition_penalty=1, "
                "and generation_kwargs without it, or H=1"
            )

    def shaped_sampling(self) -> list[str]:
        """Return the settings by which completions are not sampled from the policy itself."""
        given = self.generation_kwargs or {}
        given = json.loads(given) if isinstance(given, str) else given  # of a command line
        asked = {name: getattr(self, name) for name in NEUTRAL} | {"top_k": self.top_k or 0} | given
        neutral = NEUTRAL | {"temperature": (self.temperature,), "do_sample": (True,)}
        neutral |= {"num_beams": (1,)}
        return [
            f"{name}={value!r}"
            for name, value in asked.items()
            if name not in HARMLESS and value not in neutral.get(name, (None,))
        ]

    def _contradictions(self, processes: int) -> Iterator[str]:
        """Yield which settings are wrong, and what to change."""
        try:
            settings = self.settings
            if self.num_generations_eval == 1 and not self.trls_loss:
                self.algorithm.advantages(settings, torch.zeros(1), 1)
        except ValidationError as error:
            for one in error.errors():
                key, message = ".".join(map(str, one["loc"])), one["msg"]
                yield f"{key}={one['input']!r}: {message}" if key else message.partition(", ")[2]
        except ValueError as error:
            yield f"num_generations_eval=1: {error}"
        for name, least in AT_LEAST.items():
            value = getattr(self, name)
            wrong = isinstance(value, str) or (value is not None and not least <= value < math.inf)
            if wrong and value != AUTO:
                yield f"{name}={value}: set {name} >= {least}, and finite"
        if (by := self.dynamic_sampling_by) not in (columns := get_args(SignalColumn)):
            yield f"dynamic_sampling_by={by!r}: set it to {' or '.join(columns)}"
        if self.auto_find_batch_size:
            yield (
                "auto_find_batch_size=True halves batches where memory runs out, and would tear "
                "groups apart; leave it unset, and set micro_batch_size='auto' or lower it: the "
                "completions of one forward and backward pass"
            )
        group = self.num_generations or 1
        for name in ("n_step", "sampling_batch_size") if self.use_vllm else ("n_step",):
            if (value := getattr(self, name)) is not None and (value < group or value % group):
                yield (
                    f"{name}={value} completions are not whole groups of num_generations={group}, "
                    f"which a baseline, and vLLM, need: make it a multiple of {group}"
                    + (", by TRL's batch sizes or by itself" if name == "n_step" else "")
                )
        if self.H > 1:
            yield from self._other_distributions()
        if self.H > 1 and self.mask_truncated_completions and self.algorithm.weighs_rewards:
            yield (
                "mask_truncated_completions=True: completions without tokens have no importance "
                f"weight, and objective='{self.objective}' weighs their rewards by it; set H=1, or "
                "leave it unset"
            )
        needs = getattr(self.algorithm, "loss_function", None)
        if needs and self.max_completion_length is None and "limit" in signature(needs).parameters:
            yield f"max_completion_length=None: {self.objective} divides by it; set a number"
        yield from self._of_other_objectives()
        if self.H * self.n_step % processes:
            yield (
                f"n_step={self.n_step}, H={self.H} and {processes} process(es) do not fit: make "
                f"H * n_step a multiple of {processes}"
            )
        yield from contradictions(self, processes)

    def _of_other_objectives(self) -> Iterator[str]:
        """Yield which settings the objective does not look at, and what to change."""
        theirs = self.algorithm.scale_rewards
        if not self.trls_loss and self.scale_rewards != theirs:
            yield (
                f"scale_rewards={self.scale_rewards!r}: the advantages of objective="
                f"'{self.objective}' have {theirs!r}; leave it unset, or set objective='trl'"
            )
        others = {key: one.fields for key, one in objectives().items()}
        shared = {"dynamic_sampling_rounds", "mask_truncated_completions"}
        own = {*self.algorithm.fields} | shared  # which any objective may have
        own |= {*FIELDS} if self.trls_loss else set()
        for one in fields(self):
            name, value = one.name, getattr(self, one.name)
            owners = [key for key, has in others.items() if name in has and name not in own]
            owners += [TRL.name] * bool(owners and name in FIELDS)
            if owners and value != one.default:
                yield (
                    f"{name}={value!r}: objective='{self.objective}' has no such parameter; set "
                    f"{name}={one.default!r}, or objective to one of {', '.join(owners)}"
                )
        for name, value in explicit_trl_settings(self).items():
            default = self.__dataclass_fields__[name].default
            if name in DECIDED_BY_THE_OBJECTIVE and not self.trls_loss and value != default:
                yield (
                    f"{name}={value!r} shapes GRPOTrainer's own loss, but objective="
                    f"'{self.objective}' decides; leave it at {default!r}, or set objective='trl'"
                )


def _documented() -> str:
    """Return the fields of RapidConfig for its docstring, which are described beside defaults."""
    own = [one for one in fields(RapidConfig) if one.name in RapidConfig.__annotations__]
    wrap = TextWrapper(100, initial_indent=" " * 8, subsequent_indent=" " * 12)
    return "\n".join(wrap.fill(f"{one.name}: {one.metadata['help']}") for one in own)


RapidConfig.__doc__ = (RapidConfig.__doc__ or "").replace(
    "    Raises:", f"    Args:\n{_documented()}\n\n    Raises:"
)
# `inspect.signature` looks at `__new__` before `__init__`.
RapidConfig.__new__.__wrapped__ = RapidConfig.__init__  # type: ignore[attr-defined]
