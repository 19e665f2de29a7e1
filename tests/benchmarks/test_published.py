"""Reading published benchmarks from the hub's datasets or from files, and selecting their problems."""

import gzip
import json
import re

import datasets
import pytest

from rapid.artifacts.files import BadFile, BadInput
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.mbpp_plus import MbppPlus
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.minif2f.record import LeanProblem
from rapid.benchmarks.published import load_source, select_problems

MATH, MBPP_PLUS, MINIF2F = (BENCHMARKS[name] for name in ("math", "mbpp_plus", "minif2f"))


def make_question(number: int, **changes) -> dict:
    row = {"problem": f"{number}?", "answer": str(number), "unique_id": f"test/{number}.json"}
    return {**row, "solution": "", "subject": "Algebra", "level": 1, **changes}


def make_theorem(name: str, **changes) -> dict:
    statement = f"theorem {name} : 1 = 1"
    return {"name": name, "split": "valid", "formal_statement": statement, **changes}


def make_task(number: int) -> dict:
    return {
        "task_id": f"Mbpp/{9000 + number}",
        "prompt": f'"""\nAdd {number}.\nassert f(0) == {number}\n"""\n',
        "entry_point": "f",
        "canonical_solution": f"def f(x): return x + {number}",
        "base_input": [[0]],
        "plus_input": {},
        "atol": 0,
    }


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def list_ids(problems):
    return [problem.id for problem in problems]


@pytest.fixture
def math_folder(tmp_path):
    write_rows(tmp_path / "train.jsonl", [make_question(n) for n in range(6)])
    write_rows(tmp_path / "test.jsonl", [make_question(n) for n in range(6, 10)])
    return str(tmp_path)


def test_the_parts_of_a_folder_are_kept(math_folder):
    published = load_source(MATH, math_folder)
    assert {part: len(rows) for part, rows in published.parts.items()} == {"train": 6, "test": 4}
    assert published.parts["train"][0] == MathProblem(**make_question(0))
    assert published.source == math_folder


def test_the_pinned_commit_of_the_hub_is_loaded(monkeypatch, math_folder):
    calls = []

    def load_dataset(name, revision):
        calls.append((name, revision))
        return original(math_folder)

    original = datasets.load_dataset
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    published = load_source(MATH, "hub")
    assert calls == [MATH.hub]
    assert len(published.parts["train"]) == 6
    assert published.source == "@".join(MATH.hub)


@pytest.mark.parametrize(
    "name, revision", [benchmark.hub for benchmark in BENCHMARKS.values() if benchmark.hub]
)
def test_the_pinned_revision_is_a_commit(name, revision):
    assert re.fullmatch("[^/]+/[^/]+ [0-9a-f]{40}", f"{name} {revision}")


def test_an_unreachable_hub_is_reported_with_advice():
    # Tests are offline: the hub's client refuses before it uses the network.
    with pytest.raises(BadInput, match=r"(?s)hendrycks-MATH-benchmark could not.*set source to a"):
        load_source(MATH, "hub")


def test_a_missing_source_is_named():
    with pytest.raises(BadInput, match=r"benchmarks\.math\.source: 'nowhere\.jsonl'"):
        load_source(MATH, "nowhere.jsonl")


def test_mbpp_plus_is_read_in_the_format_of_the_hub(tmp_path):
    row = {
        "task_id": 9000,
        "code": "def f(x): return x",
        "prompt": "Return it.",
        "test_list": ["assert f(1) == 1"],
        "test": "inputs = [[1]]\nfor inp in inputs:\n    assertion(f(*inp), 1, 0)\n",
    }
    (tmp_path / "data").mkdir()
    datasets.Dataset.from_list([row]).to_parquet(tmp_path / "data/test-00000-of-00001.parquet")
    [problem] = load_source(MBPP_PLUS, str(tmp_path)).parts["test"]
    assert problem.entry_point == "f" and problem.base_input == [[1]]


def test_a_row_that_is_not_a_problem_is_named(tmp_path):
    write_rows(tmp_path / "test.jsonl", [make_question(1), {"problem": "2?"}])
    with pytest.raises(BadFile, match="test, row 1"):
        load_source(MATH, str(tmp_path))


def test_the_compressed_release_of_mbpp_plus_is_read(tmp_path):
    path = tmp_path / "MbppPlus.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(make_task(n)) + "\n" for n in range(3))
    published = load_source(MBPP_PLUS, str(path))
    assert list_ids(published.parts["all"]) == ["Mbpp/9000", "Mbpp/9001", "Mbpp/9002"]
    assert isinstance(published.parts["all"][0], CodeProblem)
    assert published.parts["all"][0].plus_input == []


@pytest.mark.parametrize(
    ("benchmark", "make_row"),
    [(MINIF2F, make_theorem), (MATH, lambda name, **changes: make_question(0, unique_id=name, **changes))],
)  # fmt: skip
def test_a_file_is_divided_by_its_split_field(tmp_path, benchmark, make_row):
    """The record of MATH has no split."""
    splits = {"a": "valid", "b": "test", "c": "validation"}
    rows = [make_row(name, split=split) for name, split in splits.items()]
    published = load_source(benchmark, write_rows(tmp_path / "f.jsonl", rows))
    assert {part: list_ids(rows) for part, rows in published.parts.items()} == {
        "train": ["a", "c"], "test": ["b"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "ending", ["", " := by\n", " := by sorry", " := by\n  sorry\n", " := sorry"]
)
def test_the_proof_of_a_published_statement_is_removed(ending):
    problem = LeanProblem(**make_theorem("a", formal_statement="theorem a : 1 = 1" + ending))
    assert problem.formal_statement == "theorem a : 1 = 1 := by\n"


def test_a_theorem_is_read_in_the_format_of_the_hub():
    row = {"id": "a", "split": "test", "formal_statement": "theorem a : 1 = 1 := sorry"}
    row |= {"header": "import Mathlib\n", "informal_stmt": "One."}
    problem = LeanProblem.model_validate(row)
    assert problem.name == "a"
    assert problem.informal_prefix == "/-- One. -/\n"
    reread = LeanProblem.model_validate_json(problem.model_dump_json())
    assert reread == problem


def test_rows_without_an_answer_are_left_out_and_named(tmp_path):
    write_rows(
        tmp_path / "train.jsonl",
        [make_question(0), make_question(1, answer=""), make_question(2, answer=" ")],
    )
    write_rows(tmp_path / "test.jsonl", [make_question(3)])
    published = load_source(MATH, str(tmp_path))
    assert list_ids(published.parts["train"]) == ["test/0.json"]
    assert published.dropped == {"test/1.json": "empty answer", "test/2.json": "empty answer"}


def test_rows_with_one_id_get_different_ids(tmp_path):
    write_rows(
        tmp_path / "train.jsonl", [make_question(0), make_question(1, unique_id="test/0.json")]
    )
    write_rows(tmp_path / "test.jsonl", [make_question(2, unique_id="test/0.json")])
    published = load_source(MATH, str(tmp_path))
    names = list_ids(published.parts["train"] + published.parts["test"])
    assert names == ["test/0.json", "test/0.json#2", "test/0.json#3"]


class TestSelection:
    def load_one_part(self, tmp_path, count=378):
        return load_source(
            MBPP_PLUS, write_rows(tmp_path / "all.jsonl", [make_task(n) for n in range(count)])
        )

    def test_copies_of_a_problem_stay_in_one_part(self, tmp_path):
        rows = [{**make_task(n // 2), "task_id": f"Mbpp/{n}"} for n in range(20)]
        published = load_source(MBPP_PLUS, write_rows(tmp_path / "all.jsonl", rows))
        for seed in range(5):
            parts = select_problems(published, MBPP_PLUS, {"train": 12, "test": 8}, seed)
            assert not {problem.content for problem in parts["test"]} & {
                problem.content for problem in parts["train"]
            }

    def test_one_part_is_divided_by_the_seed(self, tmp_path):
        published, counts = self.load_one_part(tmp_path), {"train": 264, "test": 114}
        parts, parts_of_same_seed, parts_of_other_seed = (
            select_problems(published, MBPP_PLUS, counts, seed) for seed in (0, 0, 1)
        )
        assert {part: len(problems) for part, problems in parts.items()} == counts
        assert len(set(list_ids(parts["train"] + parts["test"]))) == 378
        assert parts == parts_of_same_seed
        assert set(list_ids(parts["test"])) != set(list_ids(parts_of_other_seed["test"]))

    def test_test_problems_do_not_depend_on_the_number_of_training_problems(self, tmp_path):
        published = self.load_one_part(tmp_path)
        few, many = (
            select_problems(published, MBPP_PLUS, {"train": n, "test": 9}, 0) for n in (10, 300)
        )
        assert few["test"] == many["test"]

    def test_problems_with_weak_tests_are_evaluated_but_not_trained_on(self, tmp_path, monkeypatch):
        published = self.load_one_part(tmp_path, 10)
        counts = {"train": 6, "test": 4}
        before = select_problems(published, MBPP_PLUS, counts, 0)
        weak_ids = [before["train"][0].id, before["test"][0].id]
        monkeypatch.setattr(MbppPlus, "weak_problems", dict.fromkeys(weak_ids, "True"))
        after = select_problems(published, MBPP_PLUS, {"train": 5, "test": 4}, 0)
        assert after["test"] == before["test"]
        assert after["train"] == before["train"][1:]
        assert published.dropped == {weak_ids[0]: "not trained on: its tests accept True"}
        with pytest.raises(
            BadInput, match=r"6 problems are needed, but there are 5; left out: Mbpp/90"
        ):
            select_problems(published, MBPP_PLUS, counts, 0)

    def test_published_parts_keep_their_order(self, math_folder):
        parts = select_problems(load_source(MATH, math_folder), MATH, {"train": 6, "test": 4}, 0)
        assert list_ids(parts["train"]) == [f"test/{n}.json" for n in range(6)]

    def test_problems_of_no_part_are_left_out_and_named(self, tmp_path):
        rows = [make_theorem("a"), make_theorem("b", split="test"), make_theorem("c", split="")]
        published = load_source(MINIF2F, write_rows(tmp_path / "all.jsonl", rows))
        select_problems(published, MINIF2F, {"train": 1, "test": 1}, 0)
        assert published.dropped == {"c": "of the unused part all"}

    def test_a_request_for_too_many_problems_names_the_number_and_those_left_out(self, tmp_path):
        write_rows(tmp_path / "train.jsonl", [make_question(0), make_question(1, answer="")])
        write_rows(tmp_path / "test.jsonl", [make_question(2)])
        message = (
            r"math\.train: 2 problems are needed, but there are 1; left out: test/1\.json \(empty"
        )
        with pytest.raises(BadInput, match=message):
            select_problems(load_source(MATH, str(tmp_path)), MATH, {"train": 2, "test": 1}, 0)
