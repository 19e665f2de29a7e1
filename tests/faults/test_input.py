"""Untrusted text is never executed: names, files of models, and texts that models have written.

Each attack tries to create the file PWNED, or to give a command to a reader's terminal, TeX or browser.
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
import sys
import unicodedata
import xml.etree.ElementTree as xml
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file

from rapid import RapidConfig, RapidTrainer, cli, sampling
from rapid.artifacts.demonstrations import Demonstration
from rapid.artifacts.runs import TokenWeights
from rapid.config.params import load
from rapid.config.sources import BadParams
from rapid.config.specs import FetchSpec, Run
from rapid.stages.fetch import fetch
from rapid.text import CONTROL_CATEGORIES
from rapid.training.sft import build_sft_trainer
from reports.__main__ import main as make_report
from reports.plots import style
from reports.plots.figures import tokens
from reports.render import tex
from tests.conftest import ROOT, load_default_values
from tests.reports.conftest import RunFiles, small_values
from tests.reports.html_rules import Reader
from tests.reports.render.test_html import write_page
from tests.subprocesses import python
from tests.training.conformance.test_resume import build_trainer
from tests.training.loops import COMMON

# Names -------------------------------------------------------------------------------------------

NAMES = ["$(touch PWNED)", "`touch PWNED`", "a; touch PWNED", "a|b", "a&b", "a>b", "a b", "a\nb"]
NAMES += ["'", '"', "a\\b", "..", "../up", "a/b", "/tmp/a", "~", "-rf", "*", "{benchmark}", "#", ""]
NAMES += ["\0", "\x1b[2J", "\u202ea", "é", "a" * 65, ".hidden"]
DEFAULT = load_default_values()


def put_name(place: str, name: str) -> dict:
    """Return the default's parameters with a name at a place."""
    values = copy.deepcopy(DEFAULT)
    main, study = values["tables"]["main"], next(iter(values["studies"]["compared"].values()))
    section, key, value = {
        "experiment": (values, "name", name),
        "model": (values["models"], name, values["models"]["teacher"]),
        "teacher": (values, "teacher", name),
        "study": (values["studies"], "compared", {name: study}),
        "algorithm": (main, "algorithms", [name]),
        "variant": (main, "algorithms", [f"rapid-H4,clip={name}"]),
        "benchmark": (values["benchmarks"], name, values["benchmarks"]["math"]),
    }[place]
    section[key] = value
    return values


PLACES = ["experiment", "model", "teacher", "study", "algorithm", "variant", "benchmark"]


@pytest.mark.fault("parameters: name with path or shell syntax", times=len(NAMES))
@pytest.mark.parametrize("place", PLACES)
def test_names_that_are_no_file_names_are_refused(place):
    for name in [*NAMES, "tokenizer" if place == "model" else "small.yaml"]:
        with pytest.raises(BadParams, match="is invalid: "):
            load(put_name(place, name))


@pytest.mark.slow
@pytest.mark.fault("parameters: file path with shell syntax")
def test_a_path_with_shell_syntax_reaches_a_job_unchanged(tmp_path):
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
    manifest = "experiments/mine/data/math/manifest.json"
    options = ("--cores", 1, "--snakefile", ROOT / "Snakefile")
    files = ("--configfile", "params.yaml", "mine.yaml")
    python("-m", "snakemake", *options, *files, "--", manifest, folder=tmp_path)
    assert name in json.loads((tmp_path / manifest).read_text())["inputs"]
    assert not [*tmp_path.rglob("PWNED")]


# Files of models ---------------------------------------------------------------------------------


class Bomb:
    """Creates PWNED when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch PWNED",)


def save_bomb(**settings) -> bytes:
    torch.save({"state": Bomb()}, buffer := io.BytesIO(), **settings)
    return buffer.getvalue()


PAYLOADS = {
    "pickled": pickle.dumps({"state": Bomb()}),
    "zipped": save_bomb(),
    "legacy": save_bomb(_use_new_zipfile_serialization=False),
}
SAFE = "model.safetensors"
CODE = "import os\nos.system('touch PWNED')\nraise SystemExit(3)\n"


def set_config(folder: Path, file: str, **values) -> None:
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def replace_weights(folder: Path, name: str, content: bytes) -> None:
    (folder / SAFE).unlink()
    (folder / name).write_bytes(content)


def add_model_class(folder: Path, kind: str = "qwen2") -> None:
    classes = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}
    set_config(folder, "config.json", model_type=kind, auto_map=classes, architectures=["M"])


def add_tokenizer_class(folder: Path) -> None:
    classes = {"AutoTokenizer": ["evil.T", "evil.T"]}
    set_config(folder, "tokenizer_config.json", auto_map=classes, tokenizer_class="T")


def add_adapter(folder: Path) -> None:
    config = {"peft_type": "LORA", "base_model_name_or_path": str(folder), "target_modules": ["x"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "adapter_model.bin").write_bytes(PAYLOADS["zipped"])


def save_with_torch(folder: Path) -> None:
    torch.save(load_file(folder / SAFE), folder / "pytorch_model.bin")
    (folder / SAFE).unlink()


HOSTILE_FOLDERS = {
    "its own class": add_model_class,
    "its own class, of an unknown kind": partial(add_model_class, kind="evil"),
    "its own tokenizer": add_tokenizer_class,
    **{
        f"{name} weights": partial(replace_weights, name="pytorch_model.bin", content=payload)
        for name, payload in PAYLOADS.items()
    },
    "a pickle called safetensors": partial(replace_weights, name=SAFE, content=PAYLOADS["pickled"]),
    "an adapter": add_adapter,
    "weights in torch's format": save_with_torch,
}
# transformers has its own classes for these kinds of models, and ignores those in the folder.
IGNORED_BY_TRANSFORMERS = {"its own class", "its own tokenizer"}


def train_by_rl(folder: Path) -> None:
    sizes = {"n_step": 4, "H": 1, "micro_batch_size": 4, "max_completion_length": 2, "max_steps": 1}
    config = RapidConfig("unused", **COMMON | sizes, model_init_kwargs={"use_safetensors": True})
    rows = Dataset.from_list([{"prompt": "a"}] * 4)
    RapidTrainer(str(folder), lambda completions, **_: [1.0] * 4, config, rows).train()


def train_by_sft(folder: Path) -> None:
    rows = [Demonstration(id="a", prompt="a", message="a", completion="b")]
    settings = {"output_dir": "unused", "report_to": [], "use_cpu": True, "bf16": False}
    settings |= {"save_strategy": "no", "max_steps": 1}
    settings |= {"model_init_kwargs": {"use_safetensors": True}}
    build_sft_trainer(folder, rows, load(DEFAULT).sft, settings).train()


def sample_from(folder: Path) -> None:
    settings = {"max_tokens": 2, "temperature": 1.0, "top_p": 1.0, "seed": 0}
    sampling.sample("transformers", folder, ["a"], **settings)


def fetch_model(folder: Path) -> None:
    fetch(FetchSpec(model="mine", params={"source": str(folder)}), Path("fetched"))
    assert not [*Path("fetched").glob("*.py"), *Path("fetched").glob("*.bin")]
    sample_from(Path("fetched"))


LOADERS = [sample_from, fetch_model, train_by_rl, train_by_sft]


@pytest.mark.slow
@pytest.mark.fault("downloads: code in a model's folder")
@pytest.mark.parametrize(
    ("load_model", "hostile_folder"), itertools.product(LOADERS, HOSTILE_FOLDERS)
)
def test_no_code_in_the_folder_of_a_model_runs(
    toy_model, tmp_path, monkeypatch, load_model, hostile_folder
):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    shutil.copytree(toy_model, folder)
    for name in ("evil.py", "custom_generate/generate.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(CODE)
    HOSTILE_FOLDERS[hostile_folder](folder)
    is_harmless = hostile_folder in IGNORED_BY_TRANSFORMERS
    with nullcontext() if is_harmless else pytest.raises(Exception, match=r"\w"):
        load_model(folder)
    assert not [*tmp_path.rglob("PWNED")]


@pytest.mark.slow
@pytest.mark.fault("checkpoints: malicious pickle", times=7)
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_no_pickle_of_a_checkpoint_runs(toy_model, tmp_path, monkeypatch, payload):
    monkeypatch.chdir(tmp_path)
    build_trainer(toy_model, tmp_path / "run", H=1, max_steps=2).train()
    saved_checkpoint, checkpoint = tmp_path / "run/checkpoint-1", tmp_path / "copy/checkpoint-1"
    names = [
        path.name for path in saved_checkpoint.iterdir() if path.suffix in (".pt", ".pth", ".bin")
    ]
    assert len(names) >= 4
    for name in [*names, "scaler.pt", "pytorch_model.bin", "adapter.bin"]:
        shutil.copytree(saved_checkpoint, checkpoint)
        (checkpoint / name).write_bytes(payload)
        if name == "pytorch_model.bin":
            (checkpoint / SAFE).unlink()
        try:
            build_trainer(toy_model, tmp_path / "copy", H=1, max_steps=2).train(str(checkpoint))
        except Exception as error:
            assert "PWNED" not in str(error)
        assert not [*tmp_path.rglob("PWNED")]
        shutil.rmtree(tmp_path / "copy")


# What models have written -------------------------------------------------------------------------

HOSTILE_TEXTS = [
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1bc", "\x9b2J", "\x07", "\b\b\b", "a\rb",
    "\u202eevil", "\u2066a\u2069", "\u200b", "\ufeffa", "\u2028", "\x7f", "\x00", "a\x0bb",
    r"\input{/etc/passwd}", r"\immediate\write18{touch PWNED}", "$x_1^2$", "50% & #1 ~",
    "}\\end{document}", "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}", "<< 7 * 7 >>", "&lt;b&gt;", "javascript:alert(1)", "?`!`", "``''---",
]  # fmt: skip


def has_control_characters(text: str) -> bool:
    return any(unicodedata.category(c) in CONTROL_CATEGORIES for c in text if c not in "\n\t")


@contextmanager
def open_terminal():
    """Yield a terminal to print to, and a function that returns the output that it received."""
    reading, writing = pty.openpty()
    with (
        open(writing, "w", encoding="utf-8") as out,
        open(reading, "rb", buffering=0) as terminal_output,
    ):
        yield out, lambda: terminal_output.read(10_000).decode().replace("\r\n", "\n")


@pytest.mark.fault("untrusted text: terminal escapes in a completion", times=len(HOSTILE_TEXTS))
def test_rapid_ask_sends_a_terminal_no_control_characters(toy_model, monkeypatch, capsys):
    for text in HOSTILE_TEXTS:
        answer = [SimpleNamespace(text=text)]
        monkeypatch.setattr(sampling, "sample", lambda *_, answer=answer, **__: answer)
        with open_terminal() as (out, read_output), monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            assert cli.run(["ask", "--model", str(toy_model), "a"]) == 0
            out.flush()
            assert not has_control_characters(read_output())
        assert cli.run(["ask", "--model", str(toy_model), "a"]) == 0
        assert capsys.readouterr().out == f"{text}\n"  # a file gets the text unchanged


@pytest.mark.fault("untrusted text: terminal escapes in an error message", times=len(HOSTILE_TEXTS))
def test_an_error_about_a_file_has_no_control_characters(tmp_path, capsys):
    problems, completions = tmp_path / "problems.jsonl", tmp_path / "completions.jsonl"
    problem = {"problem": "1 + 1", "solution": r"\boxed{2}", "answer": "2", "unique_id": "a"}
    problems.write_text(json.dumps(problem) + "\n")
    files = ["--problems", str(problems), "--completions", str(completions)]
    for text in HOSTILE_TEXTS:
        completions.write_text(json.dumps({"id": "a", "completion": "b", f"k{text}": 1}) + "\n")
        assert cli.run(["grade", "--benchmark", "math", *files]) == 2
        message = capsys.readouterr().err
        assert str(completions) in message
        assert not has_control_characters(message)


@pytest.mark.fault("untrusted text: TeX commands", times=len(HOSTILE_TEXTS))
def test_escaped_text_has_no_tex_commands():
    """Every command in the escaped text is one of our own, whatever commands the text has."""
    tables = " ".join([*tex._TEXT.values(), *tex._FORMULAS.values()])
    safe_words = set(re.findall(r"\\([A-Za-z]+)", tables))
    safe_words |= {"allowbreak", "frac", "mathrm", "texttt", "textsubscript", "textsuperscript"}
    safe_words |= {tex._escape_greek(letter).lstrip("\\") for letter in "αβγδεζηθικλμνξπρστυφχψω"}
    safe_words |= set(tex._ACCENTS.values())
    for text in [*HOSTILE_TEXTS, *(text * 3 for text in HOSTILE_TEXTS)]:
        for escaped in (tex.escape(text), tex.render_label(text), tex.render_prose(text, {})):
            assert escaped.isascii()
            words = set(re.findall(r"\\([A-Za-z]+)", escaped))
            assert words <= safe_words, words - safe_words
            rest = re.sub(r"\\[A-Za-z]+|\\[{}$&#%_`'^~\"=.]", "", escaped)
            assert "\\" not in rest


@pytest.fixture
def hostile_runs(tmp_path) -> RunFiles:
    """Runs that have all hostile texts in every field that a report shows."""
    runs = RunFiles(tmp_path)
    runs.write_all(load(small_values()))
    for number, text in enumerate(HOSTILE_TEXTS):
        algorithm = ("pg", "grpo", "dapo")[number % 3]
        run = Run(benchmark="math", model="tiny_qwen", algorithm=algorithm, seed=number % 2)
        runs.write_summary(run, hardware=" ".join(HOSTILE_TEXTS), commit=text)
        runs.write_evaluation(run, status="unavailable", note=" ".join(HOSTILE_TEXTS))
    return runs


@pytest.mark.fault("untrusted text: hostile text in a report", times=len(HOSTILE_TEXTS))
def test_text_of_runs_adds_no_tag_and_no_tex_command_to_a_report(hostile_runs):
    values, root = small_values(), hostile_runs.root
    html = write_page(values, root).read_text()
    page = Reader(html)
    assert page.open == []
    script = (ROOT / "reports/render/templates/copy.js").read_text().strip()
    assert [text.strip() for text in re.findall(r"<script>(.*?)</script>", html, re.S)] == [script]
    assert html.count("<script") == 1
    assert not [link for link in page.links if link.startswith(("javascript", "x"))]
    assert not has_control_characters("".join(page.text))
    output = root / "out/tables.tex"
    options = ["--config", json.dumps(values), "--root", str(root), "--output", str(output)]
    assert make_report(options) == 0
    for file in output.parent.glob("*.t??"):
        text = file.read_text()
        assert not has_control_characters(text)
        assert file.suffix != ".tex" or (r"\input" not in text and r"\immediate" not in text)


@pytest.mark.fault("untrusted text: hostile text in a figure", times=len(HOSTILE_TEXTS))
def test_text_of_a_completion_adds_no_tag_to_a_figure():
    place = {"H": 4, "step": 1, "benchmark": "math", "id": "a"}
    record = TokenWeights(tokens=HOSTILE_TEXTS, log_weights=[0.1] * len(HOSTILE_TEXTS), **place)
    figure = style.Figure(
        title="a", caption="b", problems=(), draw=partial(tokens._draw_tokens, record)
    )
    image = style.render(figure, ["svg"])["svg"]
    tags = {element.tag.rpartition("}")[2] for element in xml.fromstring(image).iter()}
    assert tags.isdisjoint({"script", "img", "a", "foreignObject"})
