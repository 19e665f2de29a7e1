"""What was fetched and is damaged is not used: published models, Lean and images of its memory."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rapid.config.specs import FetchSpec
from rapid.grading.lean import ensure_lean, find_lean, install, launch
from rapid.stages.fetch import BadModel, fetch
from tests.faults.made import cut, flip
from tests.grading.lean.test_install import empty, package  # noqa: F401
from tests.stages.test_fetch import tiny_llama, write_gguf

WEIGHTS = "model.safetensors"
TIMES = 20
DAMAGED = pytest.mark.fault("a published model damaged")


def content(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], str]:
    """Return what changes the bytes of a file in a folder, and returns its name."""

    def damage(folder: Path) -> str:
        (folder / name).write_bytes(change((folder / name).read_bytes()))
        return name

    return damage


def deleted(name: str) -> Callable[[Path], str]:
    def damage(folder: Path) -> str:
        (folder / name).unlink()
        return ""

    return damage


def half(seed: int) -> Callable[[bytes], bytes]:
    return lambda content: cut(content, random.Random(seed))


def tensor(number: int, change: Callable) -> Callable[[Path], str]:
    """Return what puts another in the place of a tensor in a folder, or none; and returns its name."""

    def damage(folder: Path) -> str:
        found = load_file(folder / WEIGHTS)
        name = sorted(found)[number % len(found)]
        found[name] = change(found[name])
        kept = {name: one for name, one in found.items() if one is not None}
        save_file(kept, folder / WEIGHTS, metadata={"format": "pt"})
        return name

    return damage


def holding(value: float) -> Callable:
    """Return what puts a value into the middle of a tensor."""

    def change(old: torch.Tensor) -> torch.Tensor:
        old.view(-1)[old.numel() // 2] = value
        return old

    return change


def configured(**values) -> Callable[[Path], str]:
    return content("config.json", lambda text: json.dumps(json.loads(text) | values).encode())


FOLDERS = {
    **{f"weights cut off, {seed}": content(WEIGHTS, half(seed)) for seed in range(6)},
    "no weights at all": content(WEIGHTS, lambda _: b""),
    "garbage": content(WEIGHTS, lambda old: random.Random(0).randbytes(len(old))),
    "text": content(WEIGHTS, lambda _: b"version https://git-lfs.github.com/spec/v1\n"),
    **{f"not a number, {seed}": tensor(seed, holding(torch.nan)) for seed in (0, 5, 9)},
    "infinite": tensor(2, holding(-torch.inf)),
    **{f"a tensor missing, {seed}": tensor(seed, lambda _: None) for seed in (3, 4, 8)},
    **{f"of another shape, {seed}": tensor(seed, lambda _: torch.zeros(3, 5)) for seed in (1, 6)},
    "a list": content("config.json", lambda _: b"[]"),
    "half a configuration": content("config.json", half(1)),
    "a size that is none": configured(hidden_size="x"),
    "another size": configured(hidden_size=128),
    "another architecture": configured(architectures=["BertModel"], model_type="bert"),
    "half a tokenizer": content("tokenizer.json", half(2)),
    "no tokenizer": content("tokenizer.json", lambda _: b"{}"),
    **{f"without {name}": deleted(name) for name in ("config.json", WEIGHTS, "tokenizer.json")},
}


@DAMAGED
@pytest.mark.parametrize("damage", FOLDERS.values(), ids=FOLDERS)
def test_a_damaged_model_is_refused_and_nothing_left(toy_model, tmp_path, damage):
    source, folder = tmp_path / "source", tmp_path / "models/mine"
    shutil.copytree(toy_model, source)
    named = damage(source)
    with pytest.raises(BadModel, match=r"models\.mine\.source") as refusal:
        fetch(FetchSpec(model="mine", params={"source": str(source)}), folder)
    assert str(source) in str(refusal.value) and named in str(refusal.value)
    assert not folder.exists()


@pytest.mark.fault("a GGUF file damaged", times=TIMES)
def test_a_damaged_gguf_file_is_refused_and_nothing_left(tmp_path):
    path, folder = tmp_path / "tiny.gguf", tmp_path / "models/mine"
    write_gguf(tiny_llama(), path)
    whole = path.read_bytes()
    for seed in range(TIMES):
        path.write_bytes(cut(whole, random.Random(seed)) if seed else b"")
        with pytest.raises(BadModel, match=r"models\.mine\.source: tiny\.gguf is not a model"):
            fetch(FetchSpec(model="mine", params={"source": str(path)}), folder)
        assert not folder.exists()


@pytest.mark.fault("an image of Lean's memory damaged", times=TIMES)
def test_a_damaged_image_is_not_started_from(tmp_path):
    content = random.Random(0).randbytes(1000)
    whole = hashlib.sha256(content).hexdigest().encode() + b"\n" + content
    for seed in range(TIMES):
        rng, image = random.Random(seed), tmp_path / f"image{seed}"
        image.write_bytes(whole)
        launch.delete_if_damaged(image)
        assert image.exists()
        image.write_bytes(rng.choice([flip, cut])(whole, rng))
        launch.delete_if_damaged(image)
        assert not image.exists()


@pytest.mark.fault("Lean's install damaged", times=TIMES)
def test_a_damaged_install_is_made_anew(package):  # noqa: F811
    folder = ensure_lean().folder
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for seed in range(TIMES):
        rng = random.Random(seed)
        name, harm = rng.choice(["lean.js", "lean.wasm", "lib/Init.olean"]), rng.choice([flip, cut])
        path = folder / name
        path.write_bytes(harm(path.read_bytes(), rng))
        install._digest_of.cache_clear()  # as in another process
        assert find_lean(whole=True) is None
        assert (find_lean() is None) == (name in install.PROGRAMS or harm is cut)
        ensure_lean(whole=True)
        assert before == {path: path.read_bytes() for path in before}
