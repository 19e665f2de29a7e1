"""Work that the fork server (`rapid.processes.fork_server`) does before it forks jobs.

It imports the stages, so that jobs need not, and lends idle processes of graders to jobs.
"""

import json
from collections.abc import Callable
from tempfile import TemporaryDirectory

from rapid.algorithms import ALGORITHMS
from rapid.artifacts.code import hash_dependencies
from rapid.artifacts.manifests import get_versions
from rapid.benchmarks import BENCHMARKS


def rehearse() -> None:
    """Import the stages, and make calls that are slow only the first time in a process."""
    # Jobs run the code that is imported here, and write the cached digests of this call into their
    # manifests. The call comes before the imports: if a file is edited in between, the digest is
    # that of the old file, and the job counts as stale. Hashing after the imports could give the
    # edited file's digest to jobs that run the old code.
    # `plug_ins`: the modules of the algorithms and benchmarks, whose code also decides results.
    plug_ins = {
        type(plug_in).__module__ for plug_in in [*ALGORITHMS.values(), *BENCHMARKS.values()]
    }
    hash_dependencies("rapid.stages.train", "rapid.stages.evaluate", *plug_ins)

    from rapid.training.trl import prevent_vllm_import

    prevent_vllm_import()
    import rapid.sampling
    import rapid.stages.evaluate
    import rapid.training.sft
    import rapid.training.trainer  # noqa: F401

    get_versions()
    _load_tiny_model()


def lend_graders(arguments: list[str]) -> Callable[[bool], None] | None:
    """Lend idle processes of graders to the job that is forked next.

    Args:
        arguments: arguments of the `rapid` command that the job runs.

    Returns:
        A function to call when the job has ended, with whether the job succeeded; it takes the
        processes back. None if no process is lent.
    """
    try:
        run = json.loads(arguments[arguments.index("--spec") + 1])["run"]
        return BENCHMARKS[run["benchmark"]].lend()
    except (ValueError, LookupError, TypeError):  # a command that grades nothing, or a spec's path
        return None


def _load_tiny_model() -> None:
    """Load a tiny model, and let accelerate unwrap it, to do one-time work before the fork.

    At the first load transformers compiles its patterns for renaming weights. At the first
    unwrapping accelerate imports DeepSpeed, to check the model's type.
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
    # A progress bar would create its lock before the fork, and all jobs would share the lock: a job
    # that is killed while it holds the lock would block the others.
    logging.disable_progress_bar()
    with TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(tiny).save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
    logging.enable_progress_bar()
    extract_model_from_parallel(model)
