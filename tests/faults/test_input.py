"""What comes from outside stays data: names, files of models, and what models have written.

Each attack would leave a file, PWNED, or reach a reader's terminal, TeX or browser as an order.
"""

import copy
import io
import itertools
import json
import os
import pickle
import pty
import re
import shutil
import subprocess
import sys
import unicodedata
import xml.etree.ElementTree as xml
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file

from rapid import RapidConfig, RapidTrainer, cli, sampling
from rapid.artifacts.demonstrations import Demonstration
from rapid.artifacts.runs import TokenWeights
from rapid.config.jobs import Plan
from rapid.config.params import load
from rapid.config.sources import BadParams
from rapid.config.specs import FetchSpec, Run
from rapid.stages.fetch import fetch
from rapid.text import ORDERS
from rapid.training.sft import sft_trainer
from reports.__main__ import main as report
from reports.plots import style
from reports.plots.figures import tokens
from reports.render import latex
from tests.conftest import ROOT, default_values
from tests.reports.conftest import Runs, small_values
from tests.reports.render.test_html import Reader, write
from tests.training.conformance.test_resume import build
from tests.training.loops import COMMON

# Names -------------------------------------------------------------------------------------------

NAMES = ["$(touch PWNED)", "`touch PWNED`", "a; touch PWNED", "a|b", "a&b", "a>b", "a b", "a\nb"]
NAMES += ["'", '"', "a\\b", "..", "../up", "a/b", "/tmp/a", "~", "-rf", "*", "{benchmark}", "#", ""]
NAMES += ["\0", "\x1b[2J", "\u202ea", "é", "a" * 65, ".hidden"]


DEFAULT = default_values()


def renamed(where: str, name: str) -> dict:
    """The default with a name at a place."""
    values = copy.deepcopy(DEFAULT)
    main, study = values["tables"]["main"], next(iter(values["studies"]["compared"].values()))
    inside, key, value = {
        "experiment": (values, "name", name),
        "model": (values["models"], name, values["models"]["teacher"]),
        "teacher": (values, "teacher", name),
        "study": (values["studies"], "compared", {name: study}),
        "algorithm": (main, "algorithms", [name]),
        "variant": (main, "algorithms", [f"rapid-H4,clip={name}"]),
        "benchmark": (values["benchmarks"], name, values["benchmarks"]["math"]),
    }[where]
    inside[key] = value
    return values


WHERE = ["experiment", "model", "teacher", "study", "algorithm", "variant", "benchmark"]


@pytest.mark.fault("a name that leaves its folder or reaches a shell", times=len(NAMES))
@pytest.mark.parametrize("where", WHERE)
def test_a_name_is_that_of_a_file(where):
    for name in [*NAMES, "tokenizer" if where == "model" else "small.yaml"]:
        with pytest.raises(BadParams, match="is not allowed; allowed: "):
            load(renamed(where, name))


@pytest.mark.fault("a path with signs of a shell", times=len(NAMES))
def test_a_path_is_in_no_command():
    """It is in a job's spec, which the rules quote."""
    rules = "\n\n".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    shells = "".join(re.findall(r"shell:\n(.*?)\n\n", f"{rules}\n\n", re.S))
    assert {*re.findall(r"{([^}:]+)}", shells)} <= {"log", "params.command", "params.folder"}
    for name in NAMES:
        values = copy.deepcopy(DEFAULT)
        values["benchmarks"]["math"]["source"] = name
        values["models"]["teacher"] = {"source": name, "revision": name}
        try:
            plan = Plan(load(values))
        except BadParams:
            assert not name.isprintable() or not name or "{" in name
            continue
        assert name.isprintable()
        for job in map(plan.job, ("data/math", "models/teacher", "distilled/math")):
            assert re.fullmatch(r"[\w./ -]+", f"{job.command} {job.folder}")


@pytest.mark.slow
@pytest.mark.fault("a path with signs of a shell")
def test_a_path_reaches_a_job_as_it_is(tmp_path):
    name = "$(touch PWNED) `touch PWNED` 'q' \"r\"; touch PWNED & * # ~ é.jsonl"
    rows = [
        {"problem": f"{i} + 1", "solution": rf"\boxed{{{i + 1}}}", "answer": str(i + 1)}
        | {"unique_id": f"p{i}"}
        for i in range(104)
    ]
    (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    overlay = {"name": "mine", "benchmarks": {"math": {"source": name}}}
    (tmp_path / "mine.yaml").write_text(json.dumps(overlay))
    shutil.copy(ROOT / "params.yaml", tmp_path)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--snakefile", ROOT / "Snakefile"]
    command += ["--configfile", "params.yaml", "mine.yaml", "--"]
    made = "experiments/mine/data/math/manifest.json"
    done = subprocess.run([*command, made], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert name in json.loads((tmp_path / made).read_text())["inputs"]
    assert not [*tmp_path.rglob("PWNED")]


# Files of models ---------------------------------------------------------------------------------


class Bomb:
    """Leaves PWNED when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch PWNED",)


def pickled() -> bytes:
    return pickle.dumps({"state": Bomb()})


def zipped() -> bytes:
    torch.save({"state": Bomb()}, buffer := io.BytesIO())
    return buffer.getvalue()


def legacy() -> bytes:
    torch.save(Bomb(), buffer := io.BytesIO(), _use_new_zipfile_serialization=False)
    return buffer.getvalue()


SAFE = "model.safetensors"
CODE = "import os\nos.system('touch PWNED')\nraise SystemExit(3)\n"


def with_config(folder: Path, file: str, **values) -> None:
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def only_weights(folder: Path, name: str, content: bytes) -> None:
    (folder / SAFE).unlink()
    (folder / name).write_bytes(content)


def own_class(folder: Path, kind: str = "qwen2") -> None:
    classes = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}
    with_config(folder, "config.json", model_type=kind, auto_map=classes, architectures=["M"])


def own_tokenizer(folder: Path) -> None:
    classes = {"AutoTokenizer": ["evil.T", "evil.T"]}
    with_config(folder, "tokenizer_config.json", auto_map=classes, tokenizer_class="T")


def adapter(folder: Path) -> None:
    given = {"peft_type": "LORA", "base_model_name_or_path": str(folder), "target_modules": ["x"]}
    (folder / "adapter_config.json").write_text(json.dumps(given))
    (folder / "adapter_model.bin").write_bytes(zipped())


def as_torch_saves_them(folder: Path) -> None:
    torch.save(load_file(folder / SAFE), folder / "pytorch_model.bin")
    (folder / SAFE).unlink()


TRAPS = {
    "its own class": own_class,
    "its own class, of an unknown kind": lambda folder: own_class(folder, "evil"),
    "its own tokenizer": own_tokenizer,
    "pickled weights": lambda folder: only_weights(folder, "pytorch_model.bin", pickled()),
    "zipped weights": lambda folder: only_weights(folder, "pytorch_model.bin", zipped()),
    "legacy weights": lambda folder: only_weights(folder, "pytorch_model.bin", legacy()),
    "a pickle called safetensors": lambda folder: only_weights(folder, SAFE, pickled()),
    "an adapter": adapter,
    "weights of another kind": as_torch_saves_them,
}
# Of a kind that transformers knows: not looked at.
HARMLESS = {"its own class", "its own tokenizer"}


def trained_by_rl(folder: Path) -> None:
    sizes = {"n_step": 4, "H": 1, "micro_batch_size": 4, "max_completion_length": 2, "max_steps": 1}
    config = RapidConfig("unused", **COMMON | sizes, model_init_kwargs={"use_safetensors": True})
    rows = Dataset.from_list([{"prompt": "a"}] * 4)
    RapidTrainer(str(folder), lambda completions, **_: [1.0] * 4, config, rows).train()


def trained_by_sft(folder: Path) -> None:
    params = load(DEFAULT).sft
    rows = [Demonstration(id="a", prompt="a", message="a", completion="b")]
    quiet = {"output_dir": "unused", "report_to": [], "use_cpu": True, "bf16": False}
    quiet |= {"save_strategy": "no", "max_steps": 1, "model_init_kwargs": {"use_safetensors": True}}
    sft_trainer(folder, rows, params, quiet).train()


def sampled(folder: Path) -> None:
    asked = {"max_tokens": 2, "temperature": 1.0, "top_p": 1.0, "seed": 0}
    sampling.sample("transformers", folder, ["a"], **asked)


def fetched(folder: Path) -> None:
    fetch(FetchSpec(model="mine", params={"source": str(folder)}), Path("fetched"))
    assert not [*Path("fetched").glob("*.py"), *Path("fetched").glob("*.bin")]
    sampled(Path("fetched"))


DOORS = [sampled, fetched, trained_by_rl, trained_by_sft]


@pytest.mark.slow
@pytest.mark.fault("a model's folder with code in it")
@pytest.mark.parametrize(("door", "trap"), itertools.product(DOORS, TRAPS))
def test_no_code_of_a_model_runs(toy_model, tmp_path, monkeypatch, door, trap):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    shutil.copytree(toy_model, folder)
    for name in ("evil.py", "custom_generate/generate.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(CODE)
    TRAPS[trap](folder)
    with nullcontext() if trap in HARMLESS else pytest.raises(Exception, match=r"\w"):
        door(folder)
    assert not [*tmp_path.rglob("PWNED")]


@pytest.mark.slow
@pytest.mark.fault("a pickle in a checkpoint", times=7)
@pytest.mark.parametrize("payload", [pickled, zipped, legacy])
def test_no_pickle_of_a_checkpoint_runs(toy_model, tmp_path, monkeypatch, payload):
    monkeypatch.chdir(tmp_path)
    build(toy_model, tmp_path / "run", H=1, max_steps=2).train()
    kept = tmp_path / "run/checkpoint-1"
    files = [path for path in kept.iterdir() if path.suffix in (".pt", ".pth", ".bin")]
    assert len(files) >= 4
    for name in [*(path.name for path in files), "scaler.pt", "pytorch_model.bin", "adapter.bin"]:
        checkpoint = tmp_path / "copy/checkpoint-1"
        shutil.copytree(kept, checkpoint)
        (checkpoint / name).write_bytes(payload())
        if name == "pytorch_model.bin":
            (checkpoint / SAFE).unlink()
        try:
            build(toy_model, tmp_path / "copy", H=1, max_steps=2).train(str(checkpoint))
        except Exception as error:
            assert "PWNED" not in str(error)
        assert not [*tmp_path.rglob("PWNED")]
        shutil.rmtree(tmp_path / "copy")


# What models have written -------------------------------------------------------------------------

WRITTEN = ["\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1bc", "\x9b2J", "\x07", "\b\b\b", "a\rb"]
WRITTEN += ["\u202eevil", "\u2066a\u2069", "\u200b", "\ufeffa", "\u2028", "\x7f", "\x00", "a\x0bb"]
WRITTEN += [r"\input{/etc/passwd}", r"\immediate\write18{touch PWNED}", "$x_1^2$", "50% & #1 ~"]
WRITTEN += ["}\\end{document}", "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>']
WRITTEN += ["{{ 7 * 7 }}", "<< 7 * 7 >>", "&lt;b&gt;", "javascript:alert(1)", "?`!`", "``''---"]


def has_orders(text: str) -> bool:
    return any(unicodedata.category(c) in ORDERS for c in text if c not in "\n\t")


@contextmanager
def terminal():
    """A terminal to print to, and a function that returns what it was sent."""
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as out, open(ours, "rb", buffering=0) as sent:
        yield out, lambda: sent.read(10_000).decode().replace("\r\n", "\n")


@pytest.mark.fault("a completion that gives a terminal orders", times=len(WRITTEN))
def test_rapid_ask_prints_signs_only_to_a_terminal(toy_model, monkeypatch, capsys):
    for text in WRITTEN:
        answer = [SimpleNamespace(text=text)]
        monkeypatch.setattr(sampling, "sample", lambda *_, answer=answer, **__: answer)
        with terminal() as (out, sent), monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            assert cli.run(["ask", "--model", str(toy_model), "a"]) == 0
            out.flush()
            assert not has_orders(sent())
        assert cli.run(["ask", "--model", str(toy_model), "a"]) == 0
        assert capsys.readouterr().out == f"{text}\n"  # to a file as it is


@pytest.mark.fault("an error that gives a terminal orders", times=len(WRITTEN))
def test_what_is_said_of_a_file_has_no_orders(tmp_path, capsys):
    problems, completions = tmp_path / "problems.jsonl", tmp_path / "completions.jsonl"
    problem = {"problem": "1 + 1", "solution": r"\boxed{2}", "answer": "2", "unique_id": "a"}
    problems.write_text(json.dumps(problem) + "\n")
    for text in WRITTEN:
        completions.write_text(json.dumps({"id": "a", "completion": "b", f"k{text}": 1}) + "\n")
        given = ["--problems", str(problems), "--completions", str(completions)]
        assert cli.run(["grade", "--benchmark", "math", *given]) == 2
        printed = capsys.readouterr().err
        assert str(completions) in printed
        assert not has_orders(printed)


@pytest.mark.fault("text that gives TeX orders", times=len(WRITTEN))
def test_latex_is_signs_only():
    signs = [*latex._ESCAPES.values(), "{}", r"\allowbreak "]
    known = "|".join(map(re.escape, sorted(signs, key=len, reverse=True)))
    for text in [*WRITTEN, *(w * 3 for w in WRITTEN)]:
        for printed in (latex.escape(text), latex.symbols(text)):
            rest = re.sub(known, "", printed.replace("$H$", "H"))
            assert re.fullmatch(r"[\w .,;:!?()\[\]/=+*@'`-]*", rest, re.ASCII), rest


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Runs:
    """Runs whose words are all of WRITTEN, in every field that a report shows."""
    runs, params = Runs(tmp_path_factory.mktemp("hostile")), load(small_values())
    runs.all(params)
    for number, text in enumerate(WRITTEN):
        run = Run(benchmark="math", model="tiny_qwen", algorithm="pg", seed=number % 2)
        if number % 3:
            run = run.model_copy(update={"algorithm": ("grpo", "dapo")[number % 3 - 1]})
        runs.summary(run, hardware=" ".join(WRITTEN), commit=text)
        runs.evaluation(run, status="unavailable", note=" ".join(WRITTEN))
    return runs


@pytest.mark.fault("a report of what models have written", times=len(WRITTEN))
def test_words_of_runs_are_no_tags_and_no_orders(hostile):
    values = small_values()
    seen = Reader(write(values, hostile.root).read_text())
    assert seen.open == []
    assert "script" not in seen.tags
    assert not [link for link in seen.links if link.startswith(("javascript", "x"))]
    assert not has_orders("".join(seen.text))
    output = hostile.root / "out/tables.tex"
    given = ["--config", json.dumps(values), "--root", str(hostile.root), "--output", str(output)]
    assert report(given) == 0
    for file in output.parent.glob("*.t??"):
        text = file.read_text()
        assert not has_orders(text)
        if file.suffix == ".tex":
            assert r"\input" not in text
            assert r"\immediate" not in text


@pytest.mark.fault("a figure of what models have written", times=len(WRITTEN))
def test_a_figure_has_no_tags_of_a_completion(tmp_path):
    of = {"H": 4, "step": 1, "benchmark": "math", "id": "a"}
    record = TokenWeights(tokens=WRITTEN, log_weights=[0.1] * len(WRITTEN), **of)
    figure = style.Figure(title="a", caption="b", problems=(), draw=lambda: tokens._draw(record))
    drawn = style.render(figure, ["svg"])["svg"]
    tags = {element.tag.rpartition("}")[2] for element in xml.fromstring(drawn).iter()}
    assert tags.isdisjoint({"script", "img", "a", "foreignObject"})
