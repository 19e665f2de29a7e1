"""Prepares the fork server (`rapid.processes.fork_server`), so that jobs start fast.

It imports the stages before it forks, and lends idle processes of graders to jobs.
"""

import json
from collections.abc import Callable
from tempfile import TemporaryDirectory

from rapid.algorithms import ALGORITHMS
from rapid.artifacts.code import hash_dependencies
from rapid.artifacts.manifests import get_versions
from rapid.benchmarks import BENCHMARKS


def warm_up() -> None:
    """Import the stages, and make calls that are slow the first time in a process."""
    # Jobs run the code that is imported below, and their manifests get the digests that this call
    # caches. The call comes before the imports, so that a job counts as stale if a file is edited
    # in between. If the call came after the imports, jobs that run the old code could get the
    # digest of the edited file.
    plug_ins = {
        type(plug_in).__module__ for plug_in in [*ALGORITHMS.values(), *BENCHMARKS.values()]
    }
    hash_dependencies("rapid.stages.train", "rapid.stages.evaluate", *plug_ins)

    from rapid.training.trl import prevent_vllm_import

    prevent_vllm_import()  # the import takes seconds, and most jobs do not use vLLM
    import rapid.sampling
    import rapid.stages.evaluate
    import rapid.training.sft
    import rapid.training.trainer  # noqa: F401

    get_versions()  # cached, for the manifests of jobs
    _load_tiny_model()


def lend_graders(arguments: list[str]) -> Callable[[bool], None] | None:
    """Lend idle processes of graders to the job that is forked next.

    Args:
        arguments: arguments of the `rapid` command that the job runs.

    Returns:
        A function that takes the processes back. It is called when the job has ended, with whether
        the job succeeded. None if no process is lent.
    """
    try:
        run = json.loads(arguments[arguments.index("--spec") + 1])["run"]
        return BENCHMARKS[run["benchmark"]].lend()
    except (ValueError, LookupError, TypeError):  # the command grades nothing, or --spec is a path
        return None


def _load_tiny_model() -> None:
    """Load a tiny model, and let accelerate unwrap it.

    The first load compiles transformers' patterns for renaming weights, and the first unwrapping
    imports DeepSpeed.
    """
    from accelerate.utils import extract_model_from_parallel
    from transformers import AutoModelForCausalLM, Qwen2Config
    from transformers.utils import logging

    config = Qwen2Config(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
    )
    # A progress bar would create a lock that all jobs share after the fork. A job that is killed
    # while it has the lock would block the others.
    logging.disable_progress_bar()
    with TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
    logging.enable_progress_bar()
    extract_model_from_parallel(model)
