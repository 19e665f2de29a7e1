"""Prepares the fork server: imports the stages, and lends processes of graders to jobs."""

import json
from collections.abc import Callable
from tempfile import TemporaryDirectory

from rapid.algorithms import ALGORITHMS
from rapid.artifacts.code import hash_dependencies
from rapid.artifacts.manifests import get_versions
from rapid.benchmarks import BENCHMARKS


def rehearse() -> None:
    """Import the stages, and make the calls that are slow the first time."""
    # Jobs run the code that is imported here. It is hashed before the import, so that an edit in
    # between makes jobs stale; hashed afterwards, they would look current.
    plug_ins = {
        type(plug_in).__module__ for plug_in in [*ALGORITHMS.values(), *BENCHMARKS.values()]
    }
    hash_dependencies("rapid.stages.train", "rapid.stages.evaluate", *plug_ins)

    from rapid.training.trl import without_vllm

    without_vllm()
    import rapid.sampling
    import rapid.stages.evaluate
    import rapid.training.sft
    import rapid.training.trainer  # noqa: F401

    get_versions()
    _load_tiny_model()


def lend_graders(arguments: list[str]) -> Callable[[bool], None] | None:
    """Lend idle processes of graders to the job that is forked next.

    Args:
        arguments: of the `rapid` command that the job runs.

    Returns:
        A function to call when the job has ended, with whether it succeeded; None if none is lent.
    """
    try:
        run = json.loads(arguments[arguments.index("--spec") + 1])["run"]
        return BENCHMARKS[run["benchmark"]].lend()
    except (ValueError, LookupError, TypeError):  # a command that grades nothing, or a spec's path
        return None


def _load_tiny_model() -> None:
    """Load a tiny model, and let accelerate unwrap it.

    transformers then compiles its patterns for renaming weights, and accelerate imports DeepSpeed
    to check the model's type.
    """
    from accelerate.utils import extract_model_from_parallel
    from transformers import AutoModelForCausalLM, Qwen2Config
    from transformers.utils import logging

    tiny = Qwen2Config(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
    )
    logging.disable_progress_bar()  # jobs would share its lock, and one that is killed keeps it
    with TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(tiny).save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
    logging.enable_progress_bar()
    extract_model_from_parallel(model)
