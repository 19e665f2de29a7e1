"""docs/trl.md says for every field and argument of the installed TRL how RAPID treats it."""

import inspect
import json
import re
from dataclasses import MISSING, fields

import pytest
from transformers import TrainingArguments
from trl import GRPOConfig, GRPOTrainer

from rapid import RapidConfig
from rapid.training.trl import TRL_LOSS_FIELDS
from tests.conftest import ROOT
from tests.training import loops

PAGE = (ROOT / "docs/trl.md").read_text(encoding="utf-8")
SIZES = {"use_cpu": True, "bf16": False, "report_to": [], "n_step": 8, "H": 1}


def read_table(title: str) -> dict[str, tuple[str, str]]:
    """Return a section's table: for each name its treatment in one word, and details."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) *\| (\w+) *\|([^|]*)\|$", section, re.MULTILINE)
    entries = [
        (name, treatment, details.strip())
        for names, treatment, details in rows
        for name in names.strip("`").split("`, `")
    ]
    assert len({name for name, *_ in entries}) == len(entries), "a name is listed twice"
    return {name: (treatment, details) for name, treatment, details in entries}


ARGUMENTS, FIELDS = read_table("Arguments of GRPOTrainer"), read_table("Fields of GRPOConfig")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
REFUSED = [name for name, (treatment, _) in FIELDS.items() if treatment == "refused"]


def test_the_script_of_the_page_trains(toy_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = (
        EXAMPLES[0].replace("range(512)", "range(16)").replace("Qwen/Qwen2.5-0.5B", str(toy_model))
    )
    exec(compile(code, "trl.md", "exec"), {})
    [state] = tmp_path.glob("output/checkpoint-*/trainer_state.json")
    # 16 prompts fill an inference batch of H = 4 steps, in each of 3 epochs
    assert json.loads(state.read_text())["global_step"] == 4 * 3


def test_the_own_loss_of_the_page_has_the_same_gradient_for_every_micro_batch_size(
    toy_model, tmp_path
):
    """Sizes of 16, 8 and 4 completions have 4, 2 and 1 groups; 1 is smaller than a group."""
    names: dict = {}
    exec(compile(EXAMPLES[1], "trl.md", "exec"), names)
    gradients = {
        size: loops.logged_values(
            loops.train_rapid(
                toy_model, tmp_path, "pg", trainer_class=names["ConstantBaselineTrainer"], max_steps=1,
                micro_batch_size=size, pack=False,
            ),
            "grad_norm",
        )
        for size in (16, 8, 4, 1)
    }  # fmt: skip
    assert gradients[16][0] > 0.1
    for gradient in gradients.values():
        assert gradient == pytest.approx(gradients[16], rel=1e-4)


def test_page_lists_every_argument():
    assert {*ARGUMENTS} == {*inspect.signature(GRPOTrainer).parameters}


def test_page_lists_every_field():
    """Fields of transformers' TrainingArguments may be left out."""
    trl_fields = {field.name for field in fields(GRPOConfig)}
    inherited = {field.name for field in fields(TrainingArguments)}
    undecided, removed = trl_fields - inherited - {*FIELDS}, {*FIELDS} - trl_fields
    assert not undecided, f"say in docs/trl.md how these are treated: {sorted(undecided)}"
    assert not removed, f"docs/trl.md has fields that TRL has not: {sorted(removed)}"


def get_other_value(name: str):
    """Return a value that is not a field's default."""
    (field,) = (field for field in fields(RapidConfig) if field.name == name)
    assert field.default is not MISSING
    if isinstance(field.default, bool) or name == "vllm_importance_sampling_correction":
        return not field.default
    return "another" if isinstance(field.default, str) else (field.default or 0) + 0.5


@pytest.mark.parametrize("name", REFUSED)
def test_refused_fields_are_refused_by_name(name):
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        RapidConfig("unused", **SIZES, **{name: get_other_value(name)})


def test_fields_of_trls_loss_select_that_loss():
    """A setting of TRL's loss selects that loss, and is refused with objective="rapid"."""
    assert {name for name, (_, details) in FIELDS.items() if "trl" in details} == {*TRL_LOSS_FIELDS}
    defaults = {field.name: field.default for field in fields(GRPOConfig)}
    for name in TRL_LOSS_FIELDS:
        value = "batch" if name == "scale_rewards" else get_other_value(name)
        for explicit_value in {value, defaults[name]} - {None}:
            assert RapidConfig("unused", **SIZES, **{name: explicit_value}).uses_trl_loss, name
        with pytest.raises(ValueError, match=rf"\b{name}\b"):
            RapidConfig("unused", **SIZES, **{name: value}, objective="rapid")
