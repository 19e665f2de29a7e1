"""The source of problems, from parameters and from the manifests of prepared data."""

import hashlib
import json
from pathlib import Path

import pytest

from rapid.artifacts.manifests import hash_files, write_manifest
from rapid.benchmarks.problem_source import (
    build_declared_source,
    describe_sources,
    find_source_of_file,
    read_source,
)
from rapid.config.params import load
from rapid.config.specs import PrepareSpec, build_distill_spec
from rapid.stages.prepare import prepare

GENERATED_SENTENCE = "Made problems in the format of {}, not the published ones."


def make_spec(source: str = "embedded", **other_fields) -> PrepareSpec:
    sizes = {"train": 4, "test": 3, "demonstrations": 0}
    fields = {"benchmark": "math", "data_seed": 7, "source": source} | sizes | other_fields
    return PrepareSpec(**fields).with_code_digest()


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder to work in, with a file and a folder of MATH's published format."""
    monkeypatch.chdir(tmp_path)
    prepare(make_spec(), Path("made"))
    rows = Path("made/train.jsonl").read_text() + Path("made/test.jsonl").read_text()
    Path("mine $x_1.jsonl").write_text(rows)
    return Path("data/math")


def test_generated_problems_are_described_as_made(folder):
    prepare(make_spec(), folder)
    source = read_source("math", folder, "embedded")
    assert (source.label, source.name) == ("MATH (made)", "data_seed 7")
    assert source.digest == make_spec().code
    document = json.loads((folder / "manifest.json").read_text())
    assert source.revision == document["commit"]
    assert describe_sources([source]) == GENERATED_SENTENCE.format("MATH")
    for part, count in (("train", 4), ("test", 3)):
        file = folder / f"{part}.jsonl"
        assert source.get_part(part) == (count, hashlib.sha256(file.read_bytes()).hexdigest())
    assert source.get_part("validation") is None


def test_a_file_is_named_with_its_digest(folder):
    prepare(make_spec("mine $x_1.jsonl"), folder)
    digest = hashlib.sha256(Path("mine $x_1.jsonl").read_bytes()).hexdigest()
    source = read_source("math", folder, "embedded")  # the manifest says what was prepared
    assert (source.label, source.digest, source.revision) == ("MATH (file)", digest, "")
    sentence = f"MATH from the file mine $x_1.jsonl (SHA-256 {digest[:12]})."
    assert describe_sources([source]) == sentence


def test_the_digest_of_a_folder_does_not_depend_on_its_path(folder):
    sources = []
    for place in ("here/problems", "there/below/problems"):
        source = Path(place)
        source.mkdir(parents=True)
        (source / "train.jsonl").write_text("{}")
        (source / "test.jsonl").write_text("[]")
        job_spec = make_spec(place)
        write_manifest(folder, "prepare", job_spec, hash_files(source), [])
        sources.append(read_source("math", folder, place))
    first, second = sources
    assert (first.digest, first.name) == (second.digest, "problems")
    lines = "".join(
        f"{hashlib.sha256(text).hexdigest()}  {name}\n"
        for name, text in (("test.jsonl", b"[]"), ("train.jsonl", b"{}"))
    )
    assert first.digest == hashlib.sha256(lines.encode()).hexdigest()
    assert describe_sources([first]) == (
        f"MATH from the folder problems (SHA-256 {first.digest[:12]})."
    )
    assert first.label == "MATH (folder)"


def test_a_folder_that_is_not_prepared_yet_is_named_without_a_digest(folder):
    Path("problems").mkdir()
    source = read_source("math", folder, "problems")
    assert (source.label, source.digest) == ("MATH (folder)", "")
    assert describe_sources([source]) == "MATH from the folder problems."


def test_a_dataset_of_the_hub_is_named_with_its_revision(folder):
    write_manifest(
        folder, "prepare", make_spec("hub"), {}, [], source="somebody/math@0123456789abcdef"
    )
    source = read_source("math", folder, "embedded")
    assert (source.label, source.revision) == ("MATH (hub)", "0123456789abcdef")
    sentence = "MATH from the hub's dataset somebody/math at 0123456789ab."
    assert describe_sources([source]) == sentence
    assert read_source("math", "nowhere", "hub").name == "nlile/hendrycks-MATH-benchmark"


def test_sources_of_several_kinds_are_described_separately():
    names = {"mbpp_plus": "embedded", "math": "hub", "minif2f": "folder/mine.jsonl"}
    sources = [build_declared_source(name, source) for name, source in names.items()]
    assert [source.label for source in sources] == ["MBPP+ (made)", "MATH (hub)", "MiniF2F (file)"]
    text = describe_sources(sources)
    assert text.startswith("Made problems in the format of MBPP+, not the published ones; MATH ")
    assert text.endswith(
        "hendrycks-MATH-benchmark at 465bcdb36f59; MiniF2F from the file mine.jsonl."
    )
    assert describe_sources([]) == ""


def test_demonstrations_have_the_source_of_their_problems(folder, values):
    prepare(make_spec(), folder)
    samples = Path("distilled/math/samples.jsonl")
    job_spec = build_distill_spec(load(values), "math")
    samples.parent.mkdir(parents=True)
    samples.touch()
    write_manifest(
        samples.parent, "distill", job_spec, hash_files(folder / "train.jsonl"), [samples]
    )
    assert find_source_of_file("math", samples).name == "data_seed 7"
    assert find_source_of_file("math", folder / "train.jsonl").label == "MATH (made)"
    Path("mine").mkdir()
    assert find_source_of_file("math", Path("mine/own.jsonl")).label == "MATH (file)"
