"""The preparation stage: files that a seed decides, and no problem in two of them."""

import json
from pathlib import Path

import pytest

from rapid.artifacts.demonstrations import Lesson
from rapid.artifacts.files import BadInput, read_jsonl, sha256_file, write_jsonl
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.math.record import MathProblem
from rapid.config.specs import PrepareSpec
from rapid.stages.prepare import prepare, refuse_leaks

MADE = [name for name, benchmark in BENCHMARKS.items() if benchmark.draw]
FILES = ("train.jsonl", "test.jsonl", "pretrain.jsonl")


def spec(benchmark: str, **changes) -> PrepareSpec:
    sizes = {"data_seed": 0, "train": 12, "test": 8, "demonstrations": 20}
    return PrepareSpec(benchmark=benchmark, **{**sizes, **changes})


@pytest.mark.parametrize("name", MADE)
def test_the_same_seed_writes_the_same_files_of_as_many_rows_as_asked_for(name, tmp_path):
    for folder in ("a", "b"):
        prepare(spec(name), tmp_path / folder)
    record = BENCHMARKS[name].record
    for file, kind, count in zip(FILES, (record, record, Lesson), (12, 8, 20), strict=True):
        assert len(list(read_jsonl(tmp_path / "a" / file, kind))) == count
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.parametrize("source", ["train.jsonl", "."])
def test_problems_that_lie_where_the_job_writes_are_left_there(source, tmp_path):
    prepare(spec("math", train=40), tmp_path / "math")
    file = tmp_path / "math/train.jsonl"
    before = file.read_bytes()
    (tmp_path / "math/test.jsonl").unlink()
    (tmp_path / "math/pretrain.jsonl").unlink()
    (tmp_path / "math/manifest.json").unlink()
    with pytest.raises(BadInput, match="is in the folder that this job writes: move it elsewhere"):
        prepare(spec("math", source=str(tmp_path / "math" / source)), tmp_path / "math")
    assert file.read_bytes() == before


def test_test_problems_do_not_depend_on_how_many_are_trained_on(tmp_path):
    prepare(spec("math", train=12), tmp_path / "a")
    prepare(spec("math", train=24), tmp_path / "b")
    assert (tmp_path / "a/test.jsonl").read_bytes() == (tmp_path / "b/test.jsonl").read_bytes()


@pytest.mark.parametrize("name", MADE)
def test_reserved_problems_are_another_experiment_s_test_problems(name, tmp_path):
    """None of the files has one; without them all would."""
    prepare(spec(name), tmp_path / "other")
    prepare(spec(name, reserved=8, test=6), tmp_path / "own")
    reserved = {
        p.normalized_content
        for p in read_jsonl(tmp_path / "other/test.jsonl", BENCHMARKS[name].record)
    }
    for file, count in (("test.jsonl", 6), ("train.jsonl", 12)):
        contents = [
            p.normalized_content
            for p in read_jsonl(tmp_path / "own" / file, BENCHMARKS[name].record)
        ]
        assert len(contents) == count and not reserved & {*contents}
    for file in ("train.jsonl", "pretrain.jsonl"):  # the same to learn from, and the same model
        assert (tmp_path / "own" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


def test_prompts_of_pretraining_look_like_those_of_the_task(tmp_path):
    """An id in the prompt must not say which part it is from."""
    prepare(spec("minif2f"), tmp_path)
    lessons = read_jsonl(tmp_path / "pretrain.jsonl", Lesson)
    assert all(lesson.prompt.startswith("theorem made_") for lesson in lessons)


def question(id: str, text: str) -> MathProblem:
    return MathProblem(unique_id=id, problem=text, answer="1")


@pytest.mark.parametrize("second", ["What is 1?", "what  is 1? ", "What\nis 1?"])
def test_a_leak_is_refused_whatever_the_ids_spaces_and_case(second):
    parts = {"train": [question("a", "What is 1?")], "test": [question("b", second)]}
    with pytest.raises(BadInput, match="train a equals test b"):
        refuse_leaks(parts)


def test_all_leaks_are_named():
    parts = {part: [question(f"{part}{n}", f"{n}?") for n in range(30)] for part in "ab"}
    with pytest.raises(BadInput, match=r"a a0 equals b b0; a a1 equals b b1; .* and 10 more"):
        refuse_leaks(parts)


def test_parts_without_a_common_problem_are_accepted():
    train = [question("a", "1?"), question("b", "1?")]
    refuse_leaks({"train": train, "test": [question("a", "2?")]})


class TestPublished:
    @pytest.fixture
    def source(self, tmp_path) -> Path:
        folder = tmp_path / "copy"
        write_jsonl(folder / "train.jsonl", [question(f"a{n}", f"{n}?") for n in range(6)])
        write_jsonl(folder / "test.jsonl", [question(f"b{n}", f"{n}!") for n in range(4)])
        return folder

    def prepare(self, source, tmp_path, **changes) -> Path:
        prepare(spec("math", source=str(source), **{"train": 6, "test": 4, **changes}), tmp_path)
        return tmp_path

    def test_files_are_those_of_an_embedded_benchmark(self, source, tmp_path):
        folder = self.prepare(source, tmp_path)
        ids = [problem.id for problem in read_jsonl(folder / "train.jsonl", MathProblem)]
        assert ids == [f"a{n}" for n in range(6)]
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["rows"] == dict(zip(FILES, (6, 4, 20), strict=True))
        for side, where, names in (("outputs", folder, FILES), ("inputs", source, FILES[:2])):
            assert manifest[side] == {str(where / n): sha256_file(where / n) for n in names}
        assert manifest["split"] == "the source's"
        assert manifest["versions"]["python"] and manifest["commit"] and manifest["hardware"]

    def test_a_problem_of_both_parts_stops_it_and_nothing_is_written(self, source, tmp_path):
        write_jsonl(source / "test.jsonl", [question("b", "3?")])
        with pytest.raises(BadInput, match="test b equals train a3"):
            self.prepare(source, tmp_path / "out", test=1)
        assert not (tmp_path / "out").exists()

    def test_a_file_without_splits_is_divided_by_the_recorded_seed(self, source, tmp_path):
        folder = self.prepare(source / "train.jsonl", tmp_path, train=4, test=2)
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["split"] == "by data_seed"
        assert manifest["spec"]["data_seed"] == 0
