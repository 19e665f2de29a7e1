"""Damaged models, installs of Lean and images of Lean's memory are not used."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rapid.config.specs import FetchSpec
from rapid.grading.lean import ensure_lean, find_lean, install, launch
from rapid.stages.fetch import BadModel, fetch
from tests.faults.finished_pipeline import flip_bit, truncate
from tests.grading.lean.test_install import empty_machine, lean_package  # noqa: F401
from tests.stages.test_fetch import make_tiny_llama, write_gguf

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
TIMES = 20


# Each function damages a model's folder, and returns the text that the error has to contain.


def change_file(name: str, change: Callable[[bytes], bytes], folder: Path) -> str:
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    return name


def truncate_file(name: str, seed: int, folder: Path) -> str:
    return change_file(name, lambda content: truncate(content, random.Random(seed)), folder)


def delete_file(name: str, folder: Path) -> str:
    (folder / name).unlink()
    return ""


def set_config(values: dict, folder: Path) -> str:
    return change_file(CONFIG, lambda text: json.dumps(json.loads(text) | values).encode(), folder)


def change_tensor(number: int, change: Callable, folder: Path) -> str:
    """Replace a tensor, or leave it out where the change returns None."""
    tensors = load_file(folder / WEIGHTS)
    name = sorted(tensors)[number % len(tensors)]
    tensors[name] = change(tensors[name])
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return name


def put_value(value: float, tensor: torch.Tensor) -> torch.Tensor:
    tensor.view(-1)[tensor.numel() // 2] = value
    return tensor


def make_garbage(content: bytes) -> bytes:
    return random.Random(0).randbytes(len(content))


DAMAGES = {
    **{f"weights cut off, {seed}": partial(truncate_file, WEIGHTS, seed) for seed in range(6)},
    "no weights at all": partial(change_file, WEIGHTS, lambda _: b""),
    "garbage": partial(change_file, WEIGHTS, make_garbage),
    "text": partial(
        change_file, WEIGHTS, lambda _: b"version https://git-lfs.github.com/spec/v1\n"
    ),
    **{f"NaN, {n}": partial(change_tensor, n, partial(put_value, torch.nan)) for n in (0, 5, 9)},
    "infinite": partial(change_tensor, 2, partial(put_value, -torch.inf)),
    **{f"a tensor missing, {n}": partial(change_tensor, n, lambda _: None) for n in (3, 4, 8)},
    **{
        f"another shape, {n}": partial(change_tensor, n, lambda _: torch.zeros(3, 5))
        for n in (1, 6)
    },
    "a list": partial(change_file, CONFIG, lambda _: b"[]"),
    "half a configuration": partial(truncate_file, CONFIG, 1),
    "a size that is no number": partial(set_config, {"hidden_size": "x"}),
    "another size": partial(set_config, {"hidden_size": 128}),
    "another architecture": partial(
        set_config, {"architectures": ["BertModel"], "model_type": "bert"}
    ),
    "half a tokenizer": partial(truncate_file, TOKENIZER, 2),
    "an empty tokenizer": partial(change_file, TOKENIZER, lambda _: b"{}"),
    **{f"without {name}": partial(delete_file, name) for name in (CONFIG, WEIGHTS, TOKENIZER)},
}


def assert_refused(source: Path, folder: Path, *names: str) -> None:
    with pytest.raises(BadModel, match=r"models\.mine\.source") as refusal:
        fetch(FetchSpec(model="mine", params={"source": str(source)}), folder)
    assert all(name in str(refusal.value) for name in names)
    assert not folder.exists()


@pytest.mark.fault("downloads: model damaged")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_model_is_refused_and_leaves_no_file(toy_model, tmp_path, damage):
    shutil.copytree(toy_model, source := tmp_path / "source")
    assert_refused(source, tmp_path / "models/mine", str(source), damage(source))


@pytest.mark.fault("downloads: GGUF file damaged", times=TIMES)
def test_a_damaged_gguf_file_is_refused_and_leaves_no_file(tmp_path):
    path = tmp_path / "tiny.gguf"
    write_gguf(make_tiny_llama(), path)
    intact_content = path.read_bytes()
    for seed in range(TIMES):
        path.write_bytes(truncate(intact_content, random.Random(seed)) if seed else b"")
        assert_refused(path, tmp_path / "models/mine", "tiny.gguf cannot be read as a model")


@pytest.mark.fault("downloads: image of Lean's memory damaged", times=TIMES)
def test_a_damaged_image_of_lean_is_deleted(tmp_path):
    content, image = random.Random(0).randbytes(1000), tmp_path / "image"
    intact_image = hashlib.sha256(content).hexdigest().encode() + b"\n" + content
    for seed in range(TIMES):
        rng = random.Random(seed)
        for text, is_intact in (
            (intact_image, True),
            (rng.choice([flip_bit, truncate])(intact_image, rng), False),
        ):
            image.write_bytes(text)
            launch.delete_if_damaged(image)
            assert image.exists() == is_intact


@pytest.mark.fault("downloads: Lean installation damaged", times=TIMES)
def test_a_damaged_install_of_lean_is_replaced(lean_package):  # noqa: F811
    folder = ensure_lean().folder
    intact_files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for seed in range(TIMES):
        rng = random.Random(seed)
        name = rng.choice(["lean.js", "lean.wasm", "lib/Init.olean"])
        damage = rng.choice([flip_bit, truncate])
        (folder / name).write_bytes(damage((folder / name).read_bytes(), rng))
        install._hash_unchanged_file.cache_clear()  # as in another process
        assert find_lean(verify_all=True) is None
        assert (find_lean() is None) == (name in install.PROGRAMS or damage is truncate)
        ensure_lean(verify_all=True)
        assert intact_files == {path: path.read_bytes() for path in intact_files}
