"""Real benchmarks: from a copy of the hub's dataset or from files, to the records of the pipeline."""

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


def question(number: int, **changes) -> dict:
    row = {"problem": f"{number}?", "answer": str(number), "unique_id": f"test/{number}.json"}
    return {**row, "solution": "", "subject": "Algebra", "level": 1, **changes}


def theorem(name: str, **changes) -> dict:
    statement = f"theorem {name} : 1 = 1"
    return {"name": name, "split": "valid", "formal_statement": statement, **changes}


def task(number: int) -> dict:
    return {
        "task_id": f"Mbpp/{9000 + number}",
        "prompt": f'"""\nAdd {number}.\nassert f(0) == {number}\n"""\n',
        "entry_point": "f",
        "canonical_solution": f"def f(x): return x + {number}",
        "base_input": [[0]],
        "plus_input": {},
        "atol": 0,
    }


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def ids(problems):
    return [problem.id for problem in problems]


@pytest.fixture
def math_folder(tmp_path):
    write(tmp_path / "train.jsonl", [question(n) for n in range(6)])
    write(tmp_path / "test.jsonl", [question(n) for n in range(6, 10)])
    return str(tmp_path)


def test_a_folder_keeps_its_split(math_folder):
    published = load_source(MATH, math_folder)
    assert {part: len(rows) for part, rows in published.parts.items()} == {"train": 6, "test": 4}
    assert published.parts["train"][0] == MathProblem(**question(0))
    assert published.source == math_folder


def test_the_hub_is_asked_for_the_pinned_commit(monkeypatch, math_folder):
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


def test_without_a_way_to_the_hub_the_message_says_what_to_do():
    # Tests are offline: the hub's client refuses before it reaches for the network.
    with pytest.raises(BadInput, match=r"(?s)hendrycks-MATH-benchmark could not.*set source to a"):
        load_source(MATH, "hub")


def test_a_source_that_is_nowhere_is_named():
    with pytest.raises(BadInput, match=r"benchmarks\.math\.source: 'nowhere\.jsonl'"):
        load_source(MATH, "nowhere.jsonl")


def test_mbpp_plus_as_on_the_hub(tmp_path):
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


def test_a_row_of_the_hub_that_is_no_problem_is_named(tmp_path):
    write(tmp_path / "test.jsonl", [question(1), {"problem": "2?"}])
    with pytest.raises(BadFile, match="test, row 1"):
        load_source(MATH, str(tmp_path))


def test_the_release_of_mbpp_plus_compressed(tmp_path):
    path = tmp_path / "MbppPlus.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(task(n)) + "\n" for n in range(3))
    published = load_source(MBPP_PLUS, str(path))
    assert ids(published.parts["all"]) == ["Mbpp/9000", "Mbpp/9001", "Mbpp/9002"]
    assert isinstance(published.parts["all"][0], CodeProblem)
    assert published.parts["all"][0].plus_input == []


def test_a_file_is_divided_by_its_split_field(tmp_path):
    rows = [theorem("a"), theorem("b", split="test"), theorem("c", split="validation")]
    published = load_source(BENCHMARKS["minif2f"], write(tmp_path / "f.jsonl", rows))
    assert {part: ids(rows) for part, rows in published.parts.items()} == {
        "train": ["a", "c"], "test": ["b"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "ending", ["", " := by\n", " := by sorry", " := by\n  sorry\n", " := sorry"]
)
def test_a_statement_ends_where_its_proof_begins(ending):
    problem = LeanProblem(**theorem("a", formal_statement="theorem a : 1 = 1" + ending))
    assert problem.formal_statement == "theorem a : 1 = 1 := by\n"


def test_a_theorem_as_on_the_hub():
    row = {"id": "a", "split": "test", "formal_statement": "theorem a : 1 = 1 := sorry"}
    row |= {"header": "import Mathlib\n", "informal_stmt": "One."}
    problem = LeanProblem.model_validate(row)
    assert problem.name == "a"
    assert problem.informal_prefix == "/-- One. -/\n"
    reread = LeanProblem.model_validate_json(problem.model_dump_json())
    assert reread == problem


def test_rows_without_an_answer_are_left_out_and_named(tmp_path):
    write(tmp_path / "train.jsonl", [question(0), question(1, answer=""), question(2, answer=" ")])
    write(tmp_path / "test.jsonl", [question(3)])
    published = load_source(MATH, str(tmp_path))
    assert ids(published.parts["train"]) == ["test/0.json"]
    assert published.dropped == {"test/1.json": "empty answer", "test/2.json": "empty answer"}


def test_a_second_row_with_an_id_gets_its_own(tmp_path):
    write(tmp_path / "train.jsonl", [question(0), question(1, unique_id="test/0.json")])
    write(tmp_path / "test.jsonl", [question(2, unique_id="test/0.json")])
    published = load_source(MATH, str(tmp_path))
    names = ids(published.parts["train"] + published.parts["test"])
    assert names == ["test/0.json", "test/0.json#2", "test/0.json#3"]


class TestSelection:
    def all_of_one(self, tmp_path, count=378):
        return load_source(
            MBPP_PLUS, write(tmp_path / "all.jsonl", [task(n) for n in range(count)])
        )

    def test_a_problem_that_is_there_twice_stays_together(self, tmp_path):
        rows = [{**task(n // 2), "task_id": f"Mbpp/{n}"} for n in range(20)]
        published = load_source(MBPP_PLUS, write(tmp_path / "all.jsonl", rows))
        for seed in range(5):
            parts = select_problems(published, MBPP_PLUS, {"train": 12, "test": 8}, seed)
            assert not {p.content for p in parts["test"]} & {p.content for p in parts["train"]}

    def test_one_part_is_divided_by_the_seed(self, tmp_path):
        published, counts = self.all_of_one(tmp_path), {"train": 264, "test": 114}
        first, same_seed, other_seed = (
            select_problems(published, MBPP_PLUS, counts, seed) for seed in (0, 0, 1)
        )
        assert {part: len(problems) for part, problems in first.items()} == counts
        assert len(set(ids(first["train"] + first["test"]))) == 378
        assert first == same_seed
        assert set(ids(first["test"])) != set(ids(other_seed["test"]))

    def test_test_problems_do_not_depend_on_how_many_are_trained_on(self, tmp_path):
        published = self.all_of_one(tmp_path)
        few, many = (
            select_problems(published, MBPP_PLUS, {"train": n, "test": 9}, 0) for n in (10, 300)
        )
        assert few["test"] == many["test"]

    def test_what_accepts_a_constant_is_evaluated_on_but_not_trained_on(
        self, tmp_path, monkeypatch
    ):
        published = self.all_of_one(tmp_path, 10)
        counts = {"train": 6, "test": 4}
        before = select_problems(published, MBPP_PLUS, counts, 0)
        weak = [before["train"][0].id, before["test"][0].id]
        monkeypatch.setattr(MbppPlus, "weak", dict.fromkeys(weak, "True"))
        after = select_problems(published, MBPP_PLUS, {"train": 5, "test": 4}, 0)
        assert after["test"] == before["test"]
        assert after["train"] == before["train"][1:]
        assert published.dropped == {weak[0]: "not trained on: its tests accept True"}
        with pytest.raises(
            BadInput, match=r"6 problems are asked for, but there are 5; left out: Mbpp/90"
        ):
            select_problems(published, MBPP_PLUS, counts, 0)

    def test_whole_parts_keep_their_order(self, math_folder):
        parts = select_problems(load_source(MATH, math_folder), MATH, {"train": 6, "test": 4}, 0)
        assert ids(parts["train"]) == [f"test/{n}.json" for n in range(6)]

    def test_what_is_of_no_part_is_left_out_and_named(self, tmp_path):
        rows = [theorem("a"), theorem("b", split="test"), theorem("c", split="")]
        published = load_source(MINIF2F, write(tmp_path / "all.jsonl", rows))
        select_problems(published, MINIF2F, {"train": 1, "test": 1}, 0)
        assert published.dropped == {"c": "of the part all"}

    def test_more_than_there_are_says_how_many_there_are_and_what_was_left_out(self, tmp_path):
        write(tmp_path / "train.jsonl", [question(0), question(1, answer="")])
        write(tmp_path / "test.jsonl", [question(2)])
        message = r"math\.train: 2 problems are asked for, but there are 1; left out: test/1\.json \(empty"
        with pytest.raises(BadInput, match=message):
            select_problems(load_source(MATH, str(tmp_path)), MATH, {"train": 2, "test": 1}, 0)
