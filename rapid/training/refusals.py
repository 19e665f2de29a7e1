"""Raises errors for unusable arguments, prompts, completions, rewards and weights.

An error names the problem, the sample and what to do. `note_on_error` adds the circumstances, such
as the step, to errors from other code.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from itertools import zip_longest
from reprlib import Repr
from typing import Any

from datasets import IterableDataset
from torch import Tensor
from torch.nn.utils import get_total_norm
from transformers import TrainerCallback
from transformers.training_args import OptimizerNames

from rapid.training.caches import unwrap_model

IMAGE_COLUMNS = {"image", "images"}  # columns of a dataset
# PEFT's adapters that are random in training, or that let the probability of a token depend on
# tokens other than those before it.
UNSUPPORTED_ADAPTERS = {"LILY", "PVERA", "XLORA"}
TEXT_ONLY_ERROR = (
    "RapidTrainer trains on text only: remove images from the dataset and from outputs of tools"
)
# Shows prompts and completions in messages, of at most 80 characters each.
_SHORT_REPR = Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = 80


def find_refused_arguments(args, arguments: dict) -> Iterator[str]:
    """Yield a message for each of GRPOTrainer's arguments that RapidTrainer does not support.

    `args` is the `RapidConfig`, and `arguments` has all arguments of the trainer by name.
    """
    yield from _find_dataset_errors(arguments)
    model = arguments["model"]
    if args.grading_workers and arguments.get("environment_factory"):
        yield (
            f"grading_workers={args.grading_workers} grades one completion at a time, but with "
            "environment_factory reward functions get the environments of a whole batch: set "
            "grading_workers=0"
        )
    loads_by_name = args.use_vllm and args.vllm_mode == "colocate" and not isinstance(model, str)
    if loads_by_name and not getattr(model, "name_or_path", ""):
        yield (
            "use_vllm=True: vLLM loads the model by its name, but this model has none: save it "
            "with model.save_pretrained and the tokenizer with tokenizer.save_pretrained, and "
            "pass the folder as the model"
        )
    if args.use_rollout_logps and not arguments.get("rollout_func"):
        yield "use_rollout_logps=True: pass a rollout_func, whose logprobs are then used"
    if args.algorithm.scales_steps and args.deepspeed_plugin is not None:
        yield (
            f"objective={args.objective!r} sets the learning rate of each step, but DeepSpeed "
            "takes the step before this rate is known: train without DeepSpeed"
        )
    deepspeed_config = getattr(args.deepspeed_plugin, "hf_ds_config", None)
    steps = getattr(deepspeed_config, "config", {}).get("gradient_accumulation_steps", "auto")
    if steps not in (1, "auto"):
        yield (
            f"DeepSpeed's configuration sets gradient_accumulation_steps={steps}, but RapidTrainer "
            "divides the completions of a step itself: in the file of accelerate or DeepSpeed, "
            "remove the batch sizes and gradient_accumulation_steps, or set them to auto"
        )
    optimizer = OptimizerNames(args.optim).value
    if "lomo" in optimizer or optimizer.endswith("layerwise"):
        yield (
            f"optim={optimizer} changes weights in every backward pass, but an optimizer "
            "step has several: choose another optimizer"
        )
    adapters = {"new": arguments.get("peft_config")}
    adapters |= getattr(model, "peft_config", {})
    kinds = {getattr(adapter, "peft_type", None) for adapter in adapters.values()}
    for kind in sorted(UNSUPPORTED_ADAPTERS):
        if kind in kinds:
            yield (
                f"{kind}: with this adapter the probability of a token depends on more than "
                "the tokens before it, so log pi in training differs from log pi in sampling; "
                "choose another adapter"
            )
    if args.dynamic_sampling_rounds > 1 and isinstance(
        arguments.get("train_dataset"), IterableDataset
    ):
        yield (
            f"dynamic_sampling_rounds={args.dynamic_sampling_rounds} samples other "
            "prompts, which needs a dataset with a length: use a Dataset in place of the "
            "stream, or set it to 1"
        )


def _find_dataset_errors(arguments: dict) -> Iterator[str]:
    """Yield a message for each dataset of the trainer's arguments that cannot be used."""
    datasets = {"train_dataset": arguments.get("train_dataset")}
    evaluated = arguments.get("eval_dataset")
    if isinstance(evaluated, dict):  # evaluated one after the other, also if it is a DatasetDict
        datasets |= {f"eval_dataset[{name!r}]": dataset for name, dataset in evaluated.items()}
    else:
        datasets["eval_dataset"] = evaluated
    for name, dataset in datasets.items():
        if isinstance(dataset, dict):
            split = next(iter(dataset), "train")
            yield (
                f"{name} is a {type(dataset).__name__} with the splits "
                f"{', '.join(map(repr, dataset))}: pass one of them, such as dataset[{split!r}]"
            )
            continue
        columns = getattr(dataset, "column_names", None) or ()  # unknown for some streams
        # Environments may write the prompts.
        if columns and "prompt" not in columns and not arguments.get("environment_factory"):
            yield (
                f"{name} needs the column 'prompt', but has {', '.join(map(repr, columns))}: "
                "rename one with dataset.rename_column, or add it with dataset.map"
            )
        if IMAGE_COLUMNS & {*columns}:
            yield TEXT_ONLY_ERROR


def refuse_tokenizer(tokenizer) -> None:
    """Refuse a tokenizer without a token that ends completions.

    Raises:
        ValueError: the tokenizer has no eos_token.
    """
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"the tokenizer {type(tokenizer).__name__} has no eos_token, with which completions "
            "end: set tokenizer.eos_token, and pass the tokenizer as processing_class"
        )


def refuse_token_adapter(model) -> None:
    """Refuse an adapter of single tokens in the output layer (PEFT's trainable_token_indices).

    Raises:
        ValueError: the output layer has such an adapter.
    """
    layer = unwrap_model(model).get_output_embeddings()
    if hasattr(layer, "token_adapter"):
        raise ValueError(
            "trainable_token_indices trains tokens of the output layer too, because it is tied to "
            "the input embeddings or listed, but log-probabilities are computed from this layer's "
            "weights without the adapter: list the input embeddings in modules_to_save, with "
            "ensure_weight_tying=True if the layers are tied, or leave the output layer out"
        )


@contextmanager
def note_on_error(note: str) -> Iterator[None]:
    """Add a note to an error that is raised within the context."""
    try:
        yield
    except Exception as error:
        error.add_note(note)
        raise


def describe_sample(prompt, completion=None) -> str:
    """Describe a prompt, or a completion of it, shortened and with control characters escaped."""
    subject = "" if completion is None else f"the completion {_SHORT_REPR.repr(completion)} of "
    return f"{subject}the prompt {_SHORT_REPR.repr(prompt)}"


def refuse_prompt_types(prompts: Sequence) -> None:
    """Refuse prompts that are neither a text nor a list of messages.

    Raises:
        ValueError: a prompt is refused.
    """
    for prompt in prompts:
        is_chat = isinstance(prompt, list) and all(isinstance(part, Mapping) for part in prompt)
        if not isinstance(prompt, str) and not (prompt and is_chat):
            raise ValueError(
                f"{describe_sample(prompt)} is of type {type(prompt).__name__}: make it a text, or "
                "a list of messages such as [{'role': 'user', 'content': 'Hello'}]"
            )


def refuse_prompts(
    prompts: Sequence, ids: Sequence[Sequence[int]], config, limit: int | None = None
) -> None:
    """Refuse prompts without tokens, with unknown ones, or that leave no room for a completion.

    `config` is the model's configuration. `limit` is the largest number of tokens in a completion,
    if prompts are to leave room for so many.

    Raises:
        ValueError: a prompt is refused.
    """
    context = get_context(config)
    vocabulary = getattr(config, "vocab_size", None) or math.inf
    allowed = "at least 1" if context == math.inf else f"from 1 to {context - 1}"
    for prompt, tokens in zip(prompts, ids, strict=True):
        if not 0 < len(tokens) < context:
            raise ValueError(
                f"{describe_sample(prompt)} has {len(tokens)} tokens, but the model takes "
                f"{allowed}: remove or change it"
            )
        if max(tokens) >= vocabulary:
            raise ValueError(
                f"{describe_sample(prompt)} has the token {max(tokens)}, but the model has only "
                f"{vocabulary} tokens: use the model's own tokenizer, or call "
                "model.resize_token_embeddings(len(tokenizer))"
            )
        if limit and len(tokens) + limit > context:
            raise ValueError(
                f"{describe_sample(prompt)} has {len(tokens)} tokens, and max_completion_length is "
                f"{limit}, but the model has positions for {context} tokens in all: set "
                f"max_completion_length to at most {context - len(tokens)}, or shorten the prompt"
            )


def get_context(config) -> float:
    """Return the largest number of tokens that a model takes; infinity if there is no limit."""
    return getattr(config, "max_position_embeddings", None) or math.inf


def refuse_completions(prompts: Sequence, ids: Sequence[Sequence[int]]) -> None:
    """Refuse completions without tokens; even an empty text has an end-of-text token.

    Raises:
        ValueError: a completion is refused.
    """
    for prompt, tokens in zip(prompts, ids, strict=False):  # the number is not checked here
        if not len(tokens):
            raise ValueError(
                f"a completion of {describe_sample(prompt)} has no tokens, but needs at "
                "least one, which ends it"
            )


def check_rollouts(rollout_func: Callable, use_logps: bool = False) -> Callable:
    """Wrap a `rollout_func` so that completions without tokens are refused.

    With `use_logps`, its `logprobs` are checked by `refuse_logps`.
    """

    def call_and_check(prompts, trainer):
        output = rollout_func(prompts, trainer)
        completion_ids = output.get("completion_ids", ())
        refuse_completions(prompts, completion_ids)
        if use_logps:
            refuse_logps(prompts, completion_ids, output.get("logprobs") or ())
        return output

    return call_and_check


def refuse_logps(
    prompts: Sequence, ids: Sequence[Sequence[int]], logps: Sequence[Sequence[float]]
) -> None:
    """Refuse log-probs unless they are a finite number of at most 0 for each token.

    Raises:
        ValueError: the log-probs of a completion are refused.
    """
    for prompt, tokens, values in zip_longest(prompts, ids, logps, fillvalue=()):
        if len(tokens) != len(values) or not all(-math.inf < value <= 0 for value in values):
            raise ValueError(
                "use_rollout_logps=True: rollout_func returned the logprobs "
                f"{_SHORT_REPR.repr(values)} for {len(tokens)} tokens after "
                f"{describe_sample(prompt)}: return a number for each token, the natural logarithm "
                "of its probability"
            )


def read_rewards(name: str, returned: Any, count: int) -> list[float]:
    """Return what a reward function returned for `count` completions as numbers; NaN for None.

    Raises:
        ValueError: it is not a sequence of `count` numbers or None.
    """
    values = returned.tolist() if hasattr(returned, "tolist") else returned  # tensors and arrays
    try:
        if isinstance(values, str | bytes | Mapping | Set):
            raise TypeError
        values = [*values]
        if any(isinstance(value, str | bytes) for value in values):
            raise TypeError  # `float` would accept a text such as "1.0"
        rewards = [math.nan if value is None else float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        rewards = []
    if len(rewards) != count:
        raise ValueError(
            f"{name} returned {_SHORT_REPR.repr(values)} for {count} completion(s): return a list "
            "with a number for each completion, or None for one that is not graded"
        )
    return rewards


def refuse_rewards(
    rewards: Tensor, names: Sequence[str], first: int, prompts: Sequence, completions: Sequence
) -> None:
    """Refuse rewards whose square is infinite, with which the loss would not be finite.

    Args:
        rewards: (N, functions), of all processes.
        names: the names of the reward functions.
        first: row in `rewards` of this process's first completion.
        prompts, completions: of this process.

    Raises:
        ValueError: a reward is refused.
    """
    for row, column in rewards.square().isinf().nonzero().tolist():
        sample, local = "another process's sample", row - first
        if 0 <= local < len(prompts):
            sample = describe_sample(prompts[local], completions[local])
        raise ValueError(
            f"{names[column]} gave the reward {rewards[row, column]} to {sample}: a "
            "reward has to be a number from -1e19 to 1e19, or None for no reward"
        )


def refuse_weights(model, args, state, smallest: bool = False) -> None:
    """Raise FloatingPointError if trained weights are infinite or NaN.

    With `smallest` only the smallest trained tensor is tested, which is fast.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if smallest:
        trained = [min(trained, key=Tensor.numel)]
    if not get_total_norm(trained).isfinite():
        raise FloatingPointError(
            f"step {state.global_step}: weights have become infinite or NaN: lower learning_rate, "
            f"which is {args.learning_rate}, or max_grad_norm, which is {args.max_grad_norm} "
            "(0: no bound)"
        )


class FiniteWeights(TrainerCallback):
    """Callback that raises an error if weights are infinite or NaN, or if no step was taken.

    After each step only the smallest tensor is tested, which is enough for a NaN or infinite
    gradient, because that changes all weights. All weights are tested after the last step, and by
    `SavingTrainer` before they are saved or evaluated.

    Raises:
        FloatingPointError: weights are infinite or NaN.
        ValueError: the run ended without a step.
    """

    def on_step_end(self, args, state, control, model=None, **_):
        refuse_weights(model, args, state, smallest=not control.should_training_stop)

    def on_train_end(self, args, state, control, **_):
        if state.max_steps > 0 and not state.global_step:
            raise ValueError(
                "no step was taken: train_dataset has fewer samples than a batch takes "
                "(in RL an inference batch takes H * n_step / num_generations prompts)"
            )
