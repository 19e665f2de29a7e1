"""Reads the setting `accelerator_config` before TrainingArguments does."""

import json
from typing import Any

from transformers.trainer_pt_utils import AcceleratorConfig


def read_accelerator_config(setting: Any) -> Any:
    """Return the setting as an AcceleratorConfig, if it is a dictionary, JSON, or a file's name.

    TrainingArguments converts the setting too, but only after RapidConfig has set up the processes.
    The set-up reads `use_configured_state`, and ignores it in a setting that is not converted.
    TrainingArguments refuses other types itself.
    """
    if isinstance(setting, str) and setting.startswith("{"):  # from a command line
        setting = json.loads(setting)
    if isinstance(setting, str):
        return AcceleratorConfig.from_json_file(setting)
    return AcceleratorConfig(**setting) if isinstance(setting, dict) else setting
