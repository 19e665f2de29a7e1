"""The README's example is what a reader can run."""

import json
import re

from tests.conftest import ROOT


def example() -> str:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return code


def test_the_example_is_short():
    assert len(example().splitlines()) < 40


def test_the_example_trains(toy_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = example().replace("Qwen/Qwen2.5-0.5B", str(toy_model)).replace("range(32)", "range(8)")
    exec(compile(code, "README.md", "exec"), {})
    (state,) = tmp_path.glob("out/checkpoint-*/trainer_state.json")
    # 64 prompts, 8 completions each, 3 epochs, 32 completions per step
    assert json.loads(state.read_text())["global_step"] == 64 * 8 * 3 / 32
