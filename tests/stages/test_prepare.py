"""Preparation: files that depend on the seed alone, without a problem in two of them."""

import json
from pathlib import Path

import pytest

from rapid.artifacts.demonstrations import Lesson
from rapid.artifacts.files import BadInput, read_jsonl, sha256_file, write_jsonl
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.problem_source import read_source
from rapid.config.specs import PrepareSpec
from rapid.stages.prepare import check_leaks, prepare

MADE_BENCHMARKS = [name for name, benchmark in BENCHMARKS.items() if benchmark.draw]
FILES = ("train.jsonl", "test.jsonl", "pretrain.jsonl")


def make_spec(benchmark: str, **changes) -> PrepareSpec:
    sizes = {"data_seed": 0, "train": 12, "test": 8, "demonstrations": 20}
    return PrepareSpec(benchmark=benchmark, **{**sizes, **changes})


@pytest.mark.parametrize("name", MADE_BENCHMARKS)
def test_same_seed_writes_the_same_files_with_the_requested_rows(name, tmp_path):
    for folder in ("a", "b"):
        prepare(make_spec(name), tmp_path / folder)
    record = BENCHMARKS[name].record
    for file, kind, count in zip(FILES, (record, record, Lesson), (12, 8, 20), strict=True):
        assert len(list(read_jsonl(tmp_path / "a" / file, kind))) == count
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.parametrize("source", ["train.jsonl", "."])
def test_source_inside_the_output_folder_is_refused_and_kept(source, tmp_path):
    prepare(make_spec("math", train=40), tmp_path / "math")
    file = tmp_path / "math/train.jsonl"
    before = file.read_bytes()
    (tmp_path / "math/test.jsonl").unlink()
    (tmp_path / "math/pretrain.jsonl").unlink()
    (tmp_path / "math/manifest.json").unlink()
    with pytest.raises(BadInput, match="would write over files of"):
        prepare(make_spec("math", source=str(tmp_path / "math" / source)), tmp_path / "math")
    assert file.read_bytes() == before


def test_test_problems_do_not_depend_on_the_number_of_training_problems(tmp_path):
    prepare(make_spec("math", train=12), tmp_path / "a")
    prepare(make_spec("math", train=24), tmp_path / "b")
    assert (tmp_path / "a/test.jsonl").read_bytes() == (tmp_path / "b/test.jsonl").read_bytes()


@pytest.mark.parametrize("name", MADE_BENCHMARKS)
def test_reserved_test_problems_of_another_experiment_are_in_no_file(name, tmp_path):
    """None of the files has a reserved problem; without reserving, all files would."""
    prepare(make_spec(name), tmp_path / "other")
    prepare(make_spec(name, reserved=8, test=6), tmp_path / "reserving")
    reserved = {
        p.normalized_content
        for p in read_jsonl(tmp_path / "other/test.jsonl", BENCHMARKS[name].record)
    }
    for file, count in (("test.jsonl", 6), ("train.jsonl", 12)):
        contents = [
            p.normalized_content
            for p in read_jsonl(tmp_path / "reserving" / file, BENCHMARKS[name].record)
        ]
        assert len(contents) == count and not reserved & {*contents}
    for file in ("train.jsonl", "pretrain.jsonl"):  # training is not affected
        first, second = (tmp_path / folder / file for folder in ("reserving", "other"))
        assert first.read_bytes() == second.read_bytes()


def test_prompts_of_pretraining_look_like_those_of_the_task(tmp_path):
    """An id in the prompt must not reveal its part of the data."""
    prepare(make_spec("minif2f"), tmp_path)
    lessons = read_jsonl(tmp_path / "pretrain.jsonl", Lesson)
    assert all(lesson.prompt.startswith("theorem made_") for lesson in lessons)


def make_problem(id: str, text: str) -> MathProblem:
    return MathProblem(unique_id=id, problem=text, answer="1")


@pytest.mark.parametrize("second", ["What is 1?", "what  is 1? ", "What\nis 1?"])
def test_leak_is_refused_despite_other_ids_and_spaces(second):
    parts = {"train": [make_problem("a", "What is 1?")], "test": [make_problem("b", second)]}
    with pytest.raises(BadInput, match="train a equals test b"):
        check_leaks(parts)


def test_leaks_are_listed_and_counted():
    parts = {part: [make_problem(f"{part}{n}", f"{n}?") for n in range(30)] for part in "ab"}
    with pytest.raises(BadInput, match=r"a a0 equals b b0; a a1 equals b b1; .* and 10 more"):
        check_leaks(parts)


def test_parts_without_a_common_problem_are_accepted():
    train = [make_problem("a", "1?"), make_problem("b", "1?")]
    check_leaks({"train": train, "test": [make_problem("a", "2?")]})


class TestPublished:
    @pytest.fixture
    def source(self, tmp_path) -> Path:
        folder = tmp_path / "copy"
        write_jsonl(folder / "train.jsonl", [make_problem(f"a{n}", f"{n}?") for n in range(6)])
        write_jsonl(folder / "test.jsonl", [make_problem(f"b{n}", f"{n}!") for n in range(4)])
        return folder

    def prepare_source(self, source, tmp_path, **changes) -> Path:
        prepare(
            make_spec("math", source=str(source), **{"train": 6, "test": 4, **changes}), tmp_path
        )
        return tmp_path

    def test_published_problems_give_the_files_of_an_embedded_benchmark(self, source, tmp_path):
        folder = self.prepare_source(source, tmp_path)
        ids = [problem.id for problem in read_jsonl(folder / "train.jsonl", MathProblem)]
        assert ids == [f"a{n}" for n in range(6)]
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["rows"] == dict(zip(FILES, (6, 4, 20), strict=True))
        for key, parent, names in (("outputs", folder, FILES), ("inputs", source, FILES[:2])):
            assert manifest[key] == {str(parent / n): sha256_file(parent / n) for n in names}
        assert manifest["split"] == "the source's"
        assert manifest["versions"]["python"] and manifest["commit"] and manifest["hardware"]

    def test_problem_in_both_parts_is_an_error_and_nothing_is_written(self, source, tmp_path):
        write_jsonl(source / "test.jsonl", [make_problem("b", "3?")])
        with pytest.raises(BadInput, match="test b equals train a3"):
            self.prepare_source(source, tmp_path / "out", test=1)
        assert not (tmp_path / "out").exists()

    def test_file_without_splits_is_divided_by_the_recorded_seed(self, source, tmp_path):
        folder = self.prepare_source(source / "train.jsonl", tmp_path, train=4, test=2)
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["split"] == "by data_seed"
        assert manifest["spec"]["data_seed"] == 0

    def test_flawed_statements_are_kept_and_noted(self, tmp_path, capsys):
        flawed = "theorem mathd_numbertheory_247 (n : Nat) (h : 3 * n % 2 = 11) : n % 11 = 8 := by"
        rows = [
            {"name": "mathd_numbertheory_247", "split": "test", "formal_statement": flawed},
            {"name": "a", "split": "test", "formal_statement": "theorem a : 1 = 1 := by"},
            {"name": "b", "split": "valid", "formal_statement": "theorem b : 2 = 2 := by"},
        ]
        source = tmp_path / "minif2f.jsonl"
        source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        spec = make_spec("minif2f", source=str(source), train=1, test=2)
        prepare(spec, tmp_path / "data")
        manifest = json.loads((tmp_path / "data/manifest.json").read_text())
        assert manifest["rows"]["test.jsonl"] == 2 and [*manifest["flawed"]] == ["test"]
        assert [*manifest["flawed"]["test"]] == ["mathd_numbertheory_247"]
        assert "vacuous" in manifest["flawed"]["test"]["mathd_numbertheory_247"]
        assert "flawed statements: 1 of 2 test problems" in capsys.readouterr().err
        described = read_source("minif2f", tmp_path / "data", str(source))
        assert described.get_flaws("test") == manifest["flawed"]["test"]
        assert described.get_flaws("train") == {}

    def test_problems_rewritten_for_a_present_mathlib_are_noted(self, tmp_path, capsys):
        statements = {"a": "∑ k in {1}, k = 1", "b": "1 = 1", "c": "2 = 2"}
        rows = [
            {"name": name, "split": split, "formal_statement": f"theorem {name} : {text} := by"}
            for (name, text), split in zip(
                statements.items(), ("test", "test", "valid"), strict=True
            )
        ]
        source = tmp_path / "minif2f.jsonl"
        source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        prepare(make_spec("minif2f", source=str(source), train=1, test=2), tmp_path / "data")
        assert json.loads((tmp_path / "data/manifest.json").read_text())["rewritten"] == ["a"]
        assert "∑ k ∈ {1}, k = 1" in (tmp_path / "data/test.jsonl").read_text()
        assert "written for an earlier version: 1; " in capsys.readouterr().err

    def test_manifest_of_sound_problems_has_no_note_of_flaws(self, tmp_path):
        prepare(make_spec("minif2f"), tmp_path)
        assert "flawed" not in json.loads((tmp_path / "manifest.json").read_text())
