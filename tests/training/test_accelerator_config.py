"""A RapidConfig obeys `accelerator_config` when it sets up the processes."""

import json

import pytest
from accelerate.state import AcceleratorState, PartialState

from rapid import RapidConfig
from tests.training.loops import COMMON


@pytest.fixture
def configured_state():
    """The state of a RapidConfig, with a mark that is lost if the state is set up anew."""
    RapidConfig("unused", **COMMON)
    state = PartialState()
    state.mark = True
    yield state
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("form", ["dictionary", "json", "file"])
@pytest.mark.parametrize("is_kept", [False, True])
def test_configured_state_is_kept_if_the_setting_says_so(configured_state, tmp_path, form, is_kept):
    setting = {"use_configured_state": is_kept, "even_batches": False}
    text, file = json.dumps(setting), tmp_path / "accelerator.json"
    file.write_text(text)
    forms = {"dictionary": setting, "json": text, "file": str(file)}
    config = RapidConfig("unused", **COMMON, accelerator_config=forms[form])
    assert hasattr(PartialState(), "mark") is is_kept
    assert not config.accelerator_config.even_batches
