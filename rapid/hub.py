"""Reads from the Hugging Face hub: time limits, the files of a model, and the hub's cache."""

import json
from pathlib import Path

MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")  # read, never executed


def limit_hub_waiting() -> None:
    """Make requests to the hub fail after HF_HUB_DOWNLOAD_TIMEOUT seconds without an answer.

    huggingface_hub applies this limit only to downloads of files. Its request for a repository's
    list of files could wait for ever.
    """
    from huggingface_hub import constants, get_session

    def set_timeouts(request) -> None:
        timeouts = request.extensions["timeout"]
        default = constants.HF_HUB_DOWNLOAD_TIMEOUT
        request.extensions["timeout"] = {
            phase: default if seconds is None else seconds for phase, seconds in timeouts.items()
        }

    client = get_session()
    hooks = client.event_hooks
    client.event_hooks = hooks | {"request": [*hooks["request"], set_timeouts]}


def list_model_files(name: str, revision: str) -> tuple[str, dict[str, int]]:
    """Return the commit of a revision of a model on the hub, and its files' sizes in bytes by path.

    Raises:
        Exception: the hub cannot be reached or has no such model. Its client and the network raise
            many types.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile
    from huggingface_hub.utils import filter_repo_objects

    api = HfApi()
    commit = api.repo_info(name, revision=revision).sha
    entries = api.list_repo_tree(name, recursive=True, revision=commit)
    sizes = {entry.path: entry.size for entry in entries if isinstance(entry, RepoFile)}
    return commit, {
        path: sizes[path] for path in filter_repo_objects(sizes, allow_patterns=MODEL_FILES)
    }


def find_cached_model(name: str, revision: str) -> Path:
    """Return the folder of a model in the hub's cache on this machine.

    It has all `MODEL_FILES`, as far as the cache lists the repository's files; otherwise, it has
    the weights.

    Raises:
        LookupError: the cache has no copy, or an incomplete one.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        folder = Path(
            snapshot_download(
                name, revision=revision, allow_patterns=[*MODEL_FILES], local_files_only=True
            )
        )
    except (OSError, HFValidationError) as error:
        # Version 2 of the client sets `snapshot_path` if a copy is incomplete, and names a file.
        is_incomplete = getattr(error, "snapshot_path", None) is not None
        reason = str(error).partition(". ")[0]
        raise LookupError(reason if is_incomplete else "The hub's cache here has no copy") from None
    # The cache lists the files of a repository only if it was downloaded as a whole.
    index = folder / "model.safetensors.index.json"
    weights = {"model.safetensors"}
    if index.exists():
        weights = {*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
    if missing := sorted(file for file in weights if not (folder / file).is_file()):
        raise LookupError(f"The copy in the hub's cache, {folder}, lacks {missing[0]}")
    return folder
