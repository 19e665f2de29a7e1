"""Checks a RapidConfig for values out of bounds, contradictions, and settings without effect.

A message says which setting is wrong and what to change. The objective is the name of the algorithm
whose loss is minimized. RapidConfig explains n_step, H and num_generations.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from inspect import signature
from typing import Any, Literal

import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from rapid.algorithms.training_parameters import GroupSize, MicroBatch, PrecisionOrAuto, Reuse
from rapid.training.trl import TRL_LOSS_FIELDS, TRL_LOSS_ONLY_FIELDS
from rapid.training.trl.objective import TRL, explicit_trl_settings, get_objectives
from rapid.training.trl.sizes import find_size_contradictions

# Values of sampling settings with which completions are sampled from the policy itself.
NEUTRAL_SAMPLING = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (None, 0),
    "repetition_penalty": (1,),
    "vllm_structured_outputs_regex": (None,),
}
# Keys of generation_kwargs that do not change the distribution of a token, whatever their value.
HARMLESS_GENERATION_KEYS = {"max_new_tokens", "max_tokens", "stop", "stop_strings"}
HARMLESS_GENERATION_KEYS |= {"stop_token_ids", "seed", "use_cache", "cache_implementation"}
BF16 = "bfloat16"  # value of `precision`
SignalColumn = Literal["rewards", "accuracy"]  # values of dynamic_sampling_by: columns of a batch


class CheckedFields(BaseModel):
    """Fields of RapidConfig with their bounds, most of which are those of params.yaml."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    H: PositiveInt
    reuse: Reuse
    num_generations: GroupSize | None
    sampling_batch_size: PositiveInt | None
    micro_batch_size: MicroBatch | None
    token_budget: MicroBatch | None
    temperature: PositiveFloat
    learning_rate: NonNegativeFloat  # as in TRL; with 0 the policy stays as it is
    grading_workers: NonNegativeInt
    reward_timeout: PositiveFloat | None
    max_sampler_mismatch: NonNegativeFloat | None
    dynamic_sampling_by: SignalColumn
    precision: PrecisionOrAuto | None


def read_parameters(value: Any) -> Mapping[str, Any]:
    """Return the dictionary in the field `parameters`, or in its JSON, which a command line gives.

    Raises:
        ValueError: the value is no dictionary.
    """
    parameters = {} if value is None else value
    if isinstance(value, str):
        with suppress(ValueError):
            parameters = json.loads(value)
    if not isinstance(parameters, Mapping):
        raise ValueError(
            f"parameters={value!r}: set it to a dictionary of parameters and their values"
        )
    return parameters


def find_contradictions(config, processes: int) -> Iterator[str]:
    """Yield a message for each wrong setting of a RapidConfig."""
    yield from _find_parameter_errors(config)
    yield from _find_invalid_values(config)
    if config.auto_find_batch_size:
        yield (
            "auto_find_batch_size=True halves batches when memory runs out, which would "
            "split groups; leave it unset, and lower micro_batch_size (completions per "
            "forward and backward pass) or set it to 'auto'"
        )
    precision = config.precision
    if precision is not None and (config.fp16 or config.bf16 not in (None, precision == BF16)):
        yield (
            f"precision={precision!r}, bf16={config.bf16}, fp16={config.fp16}: precision sets "
            "bf16; leave bf16 and fp16 unset"
        )
    group_size = config.num_generations or 1
    for name in ("n_step", "sampling_batch_size") if config.use_vllm else ("n_step",):
        value = getattr(config, name)
        if value is not None and (value < group_size or value % group_size):
            yield (
                f"{name}={value} is not a multiple of num_generations={group_size}, but "
                f"baselines and vLLM need whole groups: set it to a multiple of {group_size}"
                + (", directly or by TRL's batch sizes" if name == "n_step" else "")
            )
    if config.is_off_policy:
        yield from _find_off_policy_errors(config)
    # A loss function with the argument `limit` divides by max_completion_length.
    loss = getattr(config.algorithm, "loss_function", None)
    if loss and config.max_completion_length is None and "limit" in signature(loss).parameters:
        yield f"max_completion_length=None: {config.objective} divides by it; set a number"
    yield from _find_settings_of_other_objectives(config)
    if config.H * config.n_step % processes:
        yield (
            f"n_step={config.n_step}, H={config.H}: {processes} processes cannot share "
            f"H * n_step completions evenly; make H * n_step a multiple of {processes}"
        )
    yield from find_size_contradictions(config, processes)


def _find_parameter_errors(config) -> Iterator[str]:
    """Yield a message for each wrong parameter of the objective, or for too small eval groups."""
    try:
        settings = config.settings  # this raises ValidationError if a parameter is wrong
        if config.num_generations_eval == 1 and not config.uses_trl_loss:
            # This raises ValueError if advantages need groups of two or more completions.
            config.algorithm.advantages(settings, torch.zeros(1), 1)
    except ValidationError as error:
        yield from _describe_invalid_values(error)
    except ValueError as error:
        yield f"num_generations_eval=1: {error}"


def _find_invalid_values(config) -> Iterator[str]:
    """Yield a message for each of the `CheckedFields` whose value is not allowed."""
    try:
        CheckedFields(**{name: getattr(config, name) for name in CheckedFields.model_fields})
    except ValidationError as error:
        yield from _describe_invalid_values(error)


def _describe_invalid_values(error: ValidationError) -> Iterator[str]:
    """Yield a message for each error. An error about several values together has no key."""
    for details in error.errors():
        key = ".".join(map(str, details["loc"]))
        message = details["msg"].removeprefix("Value error, ")
        yield f"{key}={details['input']!r}: {message}" if key else message


def _find_off_policy_errors(config) -> Iterator[str]:
    """Yield a message for each setting that rules out importance weights other than 1.

    With several optimizer steps on an inference batch, the importance weights pi / mu assume that
    the behaviour policy mu, which sampled the completions, is an earlier state of the policy pi.
    With use_rollout_logps, mu may be any policy, and the log-probs of its samples are given.
    """
    single_step = _describe_single_step(config)
    on_policy = single_step + " and use_rollout_logps=False" * config.use_rollout_logps
    if not config.disable_dropout:
        yield (
            "disable_dropout=False: with dropout, log pi and log mu would come from "
            f"different networks; set disable_dropout=True, or {on_policy}"
        )
    if config.neftune_noise_alpha:
        yield (
            f"neftune_noise_alpha={config.neftune_noise_alpha}: log pi would have noise "
            f"that log mu does not have; leave it unset, or set {on_policy}"
        )
    if config.mask_truncated_completions and config.algorithm.has_weighted_baseline:
        yield (
            "mask_truncated_completions=True: masked completions have no importance "
            f"weight, but the baseline of objective='{config.objective}' multiplies every reward "
            f"by a weight; leave it unset, or set {on_policy}"
        )
    corrects_vllm = config.use_vllm and config.vllm_importance_sampling_correction
    if config.uses_trl_loss and config.use_rollout_logps and corrects_vllm:
        yield (
            "vllm_importance_sampling_correction=True: the log-probs of use_rollout_logps=True "
            "contain the difference between vLLM and the policy already, so that it would be "
            "weighted twice; leave vllm_importance_sampling_correction unset, or set "
            "use_rollout_logps=False"
        )
    if config.steps_per_batch > 1 and (changed := find_sampling_changes(config)):
        yield (
            "importance weights need samples of the policy itself, but these settings change what "
            f"is sampled: {', '.join(changed)}; leave them unset, also in generation_kwargs, or "
            f"set {single_step}"
        )


def _describe_single_step(config) -> str:
    """Return the settings to change so that an inference batch has one optimizer step."""
    return "H=1" if config.reuse == 1 else "H=1 and reuse=1"


def find_sampling_changes(config) -> list[str]:
    """Return the settings that change the distribution of sampling, as NAME=VALUE."""
    extra = config.generation_kwargs or {}
    extra = json.loads(extra) if isinstance(extra, str) else extra  # a command line gives JSON
    values = {name: getattr(config, name) for name in NEUTRAL_SAMPLING}
    values["top_k"] = config.top_k or 0
    # Log-probabilities are those at `config.temperature`, so only another temperature is a change.
    neutral = NEUTRAL_SAMPLING | {"temperature": (config.temperature,), "do_sample": (True,)}
    neutral |= {"num_beams": (1,)}
    # A key of generation_kwargs that is not in `neutral` counts as a change unless it is None.
    return [
        f"{name}={value!r}"
        for name, value in (values | extra).items()
        if name not in HARMLESS_GENERATION_KEYS and value not in neutral.get(name, (None,))
    ]


def _find_settings_of_other_objectives(config) -> Iterator[str]:
    """Yield a message for each setting that only other objectives read."""
    scaling = config.algorithm.scale_rewards
    if not config.uses_trl_loss and config.scale_rewards != scaling:
        yield (
            f"scale_rewards={config.scale_rewards!r}: objective='{config.objective}' "
            f"always uses {scaling!r}; leave it unset, or set objective='trl'"
        )
    if config.parameters and not config.algorithm.parameters:
        yield (
            f"parameters={config.parameters!r}: objective='{config.objective}' has no such "
            "parameters; remove them, or set another objective"
        )
    allowed = {*config.algorithm.parameters_by_config_field}
    # Every objective may use these two, although DAPO declares them as its parameters.
    allowed |= {"dynamic_sampling_rounds", "mask_truncated_completions"}
    allowed |= {*TRL_LOSS_FIELDS} if config.uses_trl_loss else set()
    explicit_trl_only = explicit_trl_settings(config).keys() & TRL_LOSS_ONLY_FIELDS
    for field in fields(config):
        name, value = field.name, getattr(config, field.name)
        if name in allowed or value == field.default:
            continue
        other_objectives = [
            objective
            for objective, algorithm in get_objectives().items()
            if name in algorithm.parameters_by_config_field
        ]
        # Only "trl" reads the `TRL_LOSS_ONLY_FIELDS`. Values with which RAPID trains anyway are no
        # error: `explicit_trl_settings` leaves them out.
        if (other_objectives and name in TRL_LOSS_FIELDS) or name in explicit_trl_only:
            other_objectives.append(TRL.name)
        if other_objectives:
            yield (
                f"{name}={value!r}: objective='{config.objective}' has no such parameter; leave "
                f"{name} unset, or set objective to one of {', '.join(other_objectives)}"
            )
