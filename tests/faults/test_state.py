"""What was cut off, changed, swapped or deleted since a job wrote it is found, and never reported."""

import json
import math
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import MANIFEST, Manifest, verified
from rapid.config.jobs import plan
from rapid.config.params import load
from rapid.config.specs import PrepareSpec
from rapid.stages import upkeep
from rapid.stages.distill import distill
from rapid.stages.evaluate import evaluate
from rapid.stages.prepare import prepare
from rapid.stages.pretrain import make_tokenizer, pretrain
from rapid.stages.train import train
from reports import experiment
from reports.__main__ import main
from tests.faults import made
from tests.faults.made import cut, flip

PARAMS = [Path("params.yaml")]
TIMES = 20
RUN = "math/tiny-qwen2/rapid-H2,snapshots=1/seed1"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A pipeline that has ended."""
    root = tmp_path_factory.mktemp("whole")
    made.make(root)
    return root


@pytest.fixture
def tree(whole, tmp_path, monkeypatch) -> None:
    """A copy of it, to work in and to do harm to."""
    shutil.copytree(whole, tmp_path / "tree")
    monkeypatch.chdir(tmp_path / "tree")


def results() -> list[Path]:
    """Return the files that the report reads, but manifests."""
    files = [
        file for room in ("runs", "evaluations") for file in sorted(Path(room).rglob("*.json*"))
    ]
    return [file for file in files if file.name not in (MANIFEST, "curve.jsonl", *made.MODEL)]


@contextmanager
def kept(*paths: Path) -> Iterator[None]:
    """Put files back afterwards, and all manifests."""
    before = {path: path.read_bytes() for path in (*paths, *Path().rglob(MANIFEST))}
    yield
    for path, content in before.items():
        if path.is_dir():
            path.rmdir()
        path.write_bytes(content)


def assert_refused(capsys, *paths: Path) -> None:
    """No report is made, one of these files is named, and what to do."""
    config = json.dumps(made.small_values())
    capsys.readouterr()  # progress of what was done before
    assert main(["--config", config, "--output", "reports/tables.tex"]) == 1, paths
    (said,) = capsys.readouterr().err.splitlines()
    assert any(str(path) in said for path in paths), (paths, said)
    assert not Path("reports").exists()


def assert_repeated(*paths: Path) -> None:
    """`rapid reconcile` has the jobs of these files done anew."""
    assert upkeep.reconcile(PARAMS) == 0
    assert not any(path.with_name(MANIFEST).exists() for path in paths)


def edit(content: bytes, rng: random.Random) -> bytes:
    """Change one digit."""
    at = rng.choice([found.start() for found in re.finditer(rb"\d", content)])
    digit = rng.choice([d for d in b"0123456789" if d != content[at]])
    return content[:at] + bytes([digit]) + content[at + 1 :]


def test_what_nobody_touched_is_reported(tree):
    config = json.dumps(made.small_values())
    assert main(["--config", config, "--output", "reports/tables.tex"]) == 0
    assert experiment.main(["--config", config, "--out", "reports/experiment"]) == 0
    assert upkeep.verify(PARAMS) == 0


def delete(content: bytes, rng: random.Random) -> None:
    return None


def do_harm(path: Path, harm: Callable, rng: random.Random) -> None:
    content = harm(path.read_bytes(), rng)
    path.unlink() if content is None else path.write_bytes(content)


HARM = {
    "a byte of a result flipped": flip,
    "a result cut off": cut,
    "a result edited by hand": edit,
    "a result deleted": delete,
}


@pytest.mark.parametrize(
    "harm",
    [pytest.param(harm, marks=pytest.mark.fault(name, times=TIMES)) for name, harm in HARM.items()],
)
def test_a_changed_result_is_not_reported(tree, capsys, harm: Callable):
    rng = random.Random(0)
    for path in rng.sample(results(), TIMES):
        with kept(path):
            do_harm(path, harm, rng)
            assert_refused(capsys, path)
            assert_repeated(path)


@pytest.mark.fault("two runs' results swapped", times=TIMES)
def test_swapped_results_are_not_reported(tree, capsys):
    for seed in range(TIMES):
        rng = random.Random(seed)
        name = rng.choice(["summary.json", "steps.jsonl", "evaluation.json"])
        pair = rng.sample(sorted(Path().rglob(name)), 2)
        with kept(*pair):
            swap(*pair)
            assert_refused(capsys, *pair)
            assert_repeated(*pair)


@pytest.mark.fault("two runs' folders swapped", times=TIMES)
def test_swapped_folders_are_not_reported(tree, capsys):
    """With their manifests, which agree with what is in them."""
    for seed in range(TIMES):
        rng = random.Random(seed)
        folders = [
            path.parent for path in Path().rglob(rng.choice(["summary.json", "evaluation.json"]))
        ]
        pair = rng.sample(sorted(folders), 2)
        swap(*pair)
        assert_refused(capsys, *pair)
        swap(*pair)


def swap(one: Path, other: Path) -> None:
    one.rename("aside")
    other.rename(one)
    Path("aside").rename(other)


def edited(name: str, **values) -> tuple:
    """A change of a field, or of one in it: `a__b`."""

    def change(document: dict) -> None:
        for key, value in values.items():
            *outer, last = key.split("__")
            for part in outer:
                document = document[int(part) if part.isdigit() else part]
            document[int(last) if last.isdigit() else last] = value

    return pytest.param(name, change, id="-".join(f"{k}={v}" for k, v in values.items()))


def one_problem_less(document: dict) -> None:
    """An evaluation that adds up, of three of the four problems."""
    document["scores"].pop()
    correct = sum(score["correct"] for score in document["scores"])
    document["reasons"] = {"passed": correct, "wrong_answer": 24 - correct}
    document |= {"problems": 3, "pass_at": {"1": correct / 24}}


def more_than_sampled(document: dict) -> None:
    """An evaluation that adds up, with ten times as many completions of a problem graded."""
    document["scores"][0] |= {"samples": 80, "correct": 0}
    correct = sum(score["correct"] for score in document["scores"])
    document["reasons"] = {"passed": correct, "wrong_answer": 32 - correct}
    document["pass_at"] = {"1": correct / 32}


FORGED = pytest.mark.fault("a result edited with its manifest")
FORGERIES = [
    edited("evaluation", pass_at__1=2.72),
    edited("evaluation", pass_at__1=-0.1),
    edited("evaluation", pass_at__1=math.nan),
    edited("evaluation", pass_at__1=0.99),
    edited("evaluation", pass_at__16=0.5),
    edited("evaluation", scores=[]),
    edited("evaluation", scores__0__id="p1"),
    edited("evaluation", scores__0__correct=9),
    edited("evaluation", scores__0__correct=-1),
    edited("evaluation", scores__0__samples=80),
    edited("evaluation", problems=5),
    edited("evaluation", samples=4),
    edited("evaluation", reasons={}),
    edited("evaluation", reasons={"passed": 32}),
    edited("evaluation", temperature=0.5),
    edited("evaluation", seed=3),
    pytest.param("evaluation", one_problem_less),
    pytest.param("evaluation", more_than_sampled),
    edited("summary", runtime__total=-1.0),
    edited("summary", runtime__total=1e9),
    edited("summary", runtime__total=math.nan),
    edited("summary", runtime__sampling=-1.0),
    edited("summary", reward_last=2.0),
    edited("summary", clip_fraction=-0.5),
    edited("summary", optimizer_steps=-1),
    edited("summary", algorithm="pg"),
    pytest.param("summary", lambda document: document.pop("algorithm")),
]


@FORGED
@pytest.mark.parametrize(("name", "change"), FORGERIES)
def test_what_contradicts_itself_is_not_reported(tree, capsys, name, change):
    path = Path("runs" if name == "summary" else "evaluations", RUN, f"{name}.json")
    made.forge(path, change)
    assert_refused(capsys, path)


@FORGED
def test_what_an_evaluation_read_otherwise_is_not_reported(tree, capsys):
    """A summary that adds up, and its manifest: the evaluation's has another digest of it."""
    path = Path("runs", RUN, "summary.json")

    def change(document: dict) -> None:
        document["runtime"] = {name: 2 * value for name, value in document["runtime"].items()}

    made.forge(path, change, everywhere=False)
    assert_refused(capsys, path)


DAMAGED = [b"", b"[]", b"{}", b"null", b"{", b"3", b'"spec"', b"\xff\x00", b'{"spec": {}}']
DAMAGED += [b'{"spec": {}, "inputs": {}, "outputs": {"a/b": "", "/c": ""}}', b"DIRECTORY"]


@pytest.mark.fault("a manifest damaged", times=2 * len(DAMAGED))
def test_a_damaged_manifest_is_named_and_its_job_done_anew(tree, capsys):
    for number, content in enumerate(2 * DAMAGED):
        path = Path("runs" if number < len(DAMAGED) else "evaluations", RUN, MANIFEST)
        with kept():
            path.unlink()
            path.mkdir() if content == b"DIRECTORY" else path.write_bytes(content)
            assert_refused(capsys, path)
            assert upkeep.verify(PARAMS) == 1
            assert str(path) in capsys.readouterr().out
            assert_repeated(path)


@pytest.mark.fault("files put into a job's folder", times=TIMES)
def test_files_of_nobody_are_not_reported(tree, capsys):
    """Those of another run, in the place of its own or of none."""
    runs = sorted(path.parent for path in Path("runs").rglob("summary.json"))
    for seed in range(TIMES):
        rng = random.Random(seed)
        name = ("token_weights.json", "summary.json", "steps.jsonl")[seed % 3]
        given = rng.choice([one for one in results() if one.parent in runs and one.name == name])
        path = rng.choice([run for run in runs if run != given.parent]) / given.name
        with kept(*([path] if path.exists() else [])):
            path.write_bytes(given.read_bytes())
            assert_refused(capsys, path)
            path.unlink()


def jobs() -> list:
    """Jobs, each with the files that it reads and with what does it."""
    data, model, run = Path("data/math"), Path("models/tiny-qwen2"), Path("runs", RUN)
    planned, tokenizer, out = plan(load(made.small_values())), Path("models/tokenizer"), Path("out")
    pretraining, training, test = (data / f"{name}.jsonl" for name in ("pretrain", "train", "test"))

    def spec(folder: str | Path):
        return planned.job(str(folder)).spec

    return [
        ([pretraining], lambda: make_tokenizer(spec(tokenizer), [data], out)),
        ([pretraining, *of(tokenizer)], lambda: pretrain(spec(model), [data], tokenizer, out)),
        ([training, *of(model)], lambda: distill(spec("distilled/math"), model, training, out)),
        ([training, *of(model)], lambda: train(spec(run), model, training, out)),
        (
            [test, *of(run / "model"), run / "summary.json", run / "steps.jsonl"],
            lambda: evaluate(spec(f"evaluations/{RUN}"), run / "model", test, out),
        ),
    ]


def of(folder: Path | str) -> list[Path]:
    return [Path(folder, name) for name in made.MODEL]


@pytest.mark.fault("an input changed before its job", times=2 * TIMES)
def test_a_job_refuses_what_was_changed_since_it_was_made(tree):
    for seed in range(2 * TIMES):
        rng = random.Random(seed)
        files, do = rng.choice(jobs())
        path = rng.choice(files)
        with kept(path):
            do_harm(path, rng.choice([*HARM.values()]), rng)
            said = rf"^{path}: .*Delete \S+{MANIFEST} and run snakemake"
            with pytest.raises(BadFile, match=said):
                do()
            assert not Path("out").exists()


@pytest.mark.fault("leftovers of an interrupted job", times=TIMES)
def test_what_an_interrupted_job_left_is_gone(tree):
    spec = PrepareSpec(benchmark="math", data_seed=0, train=4, test=4, demonstrations=4)
    names = ["train.jsonl", "test.jsonl", "pretrain.jsonl", MANIFEST]
    for seed in range(TIMES):
        rng, folder = random.Random(seed), Path(f"out{seed}")
        folder.mkdir()
        for name in rng.sample([*names, *(f".{name}.{rng.randrange(99999)}" for name in names)], 4):
            (folder / name).write_bytes(rng.randbytes(100))
        prepare(spec, folder)
        assert sorted(path.name for path in folder.iterdir()) == sorted(names)
        assert verified(folder) == Manifest.read(folder).outputs
