"""Settings and fixtures of all tests. Every test runs offline, on one thread, from a seed.

`make test` runs two files at a time with `pytest -n 2 --dist loadfile --no-loadscope-reorder`. All
tests of a file run in one worker, so that the file's fixtures are made once.
"""

import copy
import functools
import gc
import os
import shutil
import signal
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"  # also silences telemetry
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

if "PYTEST_XDIST_WORKER" not in os.environ:
    # The files of leases (`rapid.resources.leases`) are in this folder too, so no test waits for
    # jobs of other programs.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # the folder of tmp_path
    TEMPORARY = tempfile.TemporaryDirectory(prefix="rapid-tests-")
    os.chmod(TEMPORARY.name, 0o755)  # some tests read files in it as another user
    os.environ["TMPDIR"] = TEMPORARY.name
    tempfile.tempdir = None  # so that tempfile reads TMPDIR again

from pathlib import Path

import pytest
import yaml

from rapid.training.trl import prevent_vllm_import

gc.disable()  # until all tests are imported
prevent_vllm_import()  # TRL does not import vLLM, which takes seconds; tests of vLLM start processes

ROOT = Path(__file__).parent.parent
LONGEST_FILES = ("tests/end_to_end/test_dag.py", "tests/training/", "tests/grading/")


def pytest_configure() -> None:
    """Let SIGTERM end a session as Ctrl-C does, so that fixtures are cleaned up.

    SIGINT gets this handler too: the background jobs of a shell ignore the signal, and so would all
    processes that the tests start.
    """
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first, so that none of them runs alone at the end."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(
            key=lambda item: [item.location[0].startswith(prefix) for prefix in LONGEST_FILES],
            reverse=True,
        )


def pytest_collection_finish() -> None:
    """Exclude imported objects from garbage collections, which Trainer starts in every run."""
    gc.freeze()
    gc.enable()


@functools.cache
def _parse_params_yaml() -> dict:
    return yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))


def load_default_values() -> dict:
    """Return the content of params.yaml as a dict that the caller may change."""
    return copy.deepcopy(_parse_params_yaml())


@pytest.fixture
def values() -> dict:
    """The content of params.yaml, which the test may change."""
    return load_default_values()


def save_qwen2(folder: Path, tokenizer, **shape) -> Path:
    """Save an untrained Qwen2 of this shape with its tokenizer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        **shape,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory) -> Path:
    """A folder with an untrained Qwen2 of one layer and a byte-level tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", *alphabet])}
    tokenizer_core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer_core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer_core.decoder = decoders.ByteLevel()
    tokenizer_core.add_special_tokens(["<pad>", "<eos>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer_core, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    return save_qwen2(
        tmp_path_factory.mktemp("toy-model"),
        tokenizer,
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        intermediate_size=64,
    )


@pytest.fixture(scope="session")
def chat_model(toy_model, tmp_path_factory) -> Path:
    """A copy of the toy model with a chat template."""
    folder = shutil.copytree(toy_model, tmp_path_factory.mktemp("chat") / "model")
    template = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    return folder
