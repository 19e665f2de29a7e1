"""docs/trl.md says of every field and argument of the installed TRL what becomes of it here."""

import inspect
import json
import re
from dataclasses import MISSING, fields

import pytest
from transformers import TrainingArguments
from trl import GRPOConfig, GRPOTrainer

from rapid import RapidConfig
from rapid.training.trl.objective import FIELDS as OF_TRLS_LOSS
from tests.conftest import ROOT

PAGE = (ROOT / "docs/trl.md").read_text(encoding="utf-8")
SIZES = {"use_cpu": True, "bf16": False, "report_to": [], "n_step": 8, "H": 1}


def table(title: str) -> dict[str, tuple[str, str]]:
    """Return what a section's table says of each name: a word, and how."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) *\| (\w+) *\|([^|]*)\|$", section, re.MULTILINE)
    named = [
        (name, says, how.strip())
        for names, says, how in rows
        for name in names.strip("`").split("`, `")
    ]
    assert len({name for name, *_ in named}) == len(named), "a name is there twice"
    return {name: (says, how) for name, says, how in named}


ARGUMENTS, FIELDS = table("Arguments of GRPOTrainer"), table("Fields of GRPOConfig")
REFUSED = [name for name, (says, _) in FIELDS.items() if says == "refused"]


def test_the_script_of_the_page_trains(toy_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    code = code.replace("range(512)", "range(16)").replace("Qwen/Qwen2.5-0.5B", str(toy_model))
    exec(compile(code, "trl.md", "exec"), {})
    [state] = tmp_path.glob("output/checkpoint-*/trainer_state.json")
    # 16 prompts fill an inference batch of H = 4 steps, in each of 3 epochs
    assert json.loads(state.read_text())["global_step"] == 4 * 3


def test_every_argument_is_decided():
    assert {*ARGUMENTS} == {*inspect.signature(GRPOTrainer).parameters}


def test_every_field_is_decided():
    """Those of transformers' TrainingArguments need no decision, but may have one."""
    theirs = {one.name for one in fields(GRPOConfig)}
    inherited = {one.name for one in fields(TrainingArguments)}
    undecided, gone = theirs - inherited - {*FIELDS}, {*FIELDS} - theirs
    assert not undecided, f"say in docs/trl.md what becomes of {sorted(undecided)}"
    assert not gone, f"docs/trl.md has fields that TRL has not: {sorted(gone)}"


def other(name: str):
    """Return another value than a field's default."""
    (field,) = (one for one in fields(RapidConfig) if one.name == name)
    assert field.default is not MISSING
    if isinstance(field.default, bool) or name == "vllm_importance_sampling_correction":
        return not field.default
    return "another" if isinstance(field.default, str) else (field.default or 0) + 0.5


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_page_calls_refused_is_refused_by_name(name):
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        RapidConfig("unused", **SIZES, **{name: other(name)})


def test_what_the_page_says_of_the_objective_is_so():
    """A setting of TRL's loss takes that loss, or is refused where RAPID was asked for."""
    assert {name for name, (_, how) in FIELDS.items() if "trl" in how} == {*OF_TRLS_LOSS}
    defaults = {one.name: one.default for one in fields(GRPOConfig)}
    for name in OF_TRLS_LOSS:
        value = "batch" if name == "scale_rewards" else other(name)
        for written in {value, defaults[name]} - {None}:
            assert RapidConfig("unused", **SIZES, **{name: written}).trls_loss, name
        with pytest.raises(ValueError, match=rf"\b{name}\b"):
            RapidConfig("unused", **SIZES, **{name: value}, objective="rapid")
