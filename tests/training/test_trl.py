"""The installed TRL has the internals that rapid.training.trl overrides or calls by name."""

import ast
import importlib.metadata
import inspect
import re

import pytest
import trl
from accelerate.state import GradientState
from accelerate.utils import imports as accelerate_imports
from trl import GRPOConfig, GRPOTrainer
from trl import import_utils as trl_imports
from trl.generation import vllm_generation
from trl.trainer.utils import add_fused_lm_head

from rapid import RapidTrainer
from rapid.training import forward
from rapid.training.gradient_trainer import GradientTrainer
from rapid.training.trl import (
    LOSS_COLUMNS,
    REFUSED_COLUMNS,
    TRL_LOSS_FIELDS,
    prevent_vllm_import,
    vllm,
)
from rapid.training.trl.loss_trainer import TOKEN_MEAN_LOSS_TYPES, TrlLossTrainer
from rapid.training.trl.micro_batch_trainer import MicroBatchTrainer
from rapid.training.trl.prompts import PromptTrainer
from rapid.training.trl.resumable_trainer import ResumableTrainer
from rapid.training.trl.sampling_trainer import SamplingTrainer
from rapid.training.trl.saving_trainer import SavingTrainer
from tests.checkout import ROOT
from tests.training.loops import train_rapid

CLASSES = (
    SavingTrainer,
    ResumableTrainer,
    TrlLossTrainer,
    PromptTrainer,
    SamplingTrainer,
    MicroBatchTrainer,
    GradientTrainer,
    RapidTrainer,
)
SIZES = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "generation_batch_size",
)


def find_moved_methods():
    """Yield RAPID's methods that no longer override what they should, or override something new."""
    variadic = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    for trainer_class in CLASSES:
        for name, method in vars(trainer_class).items():
            if not inspect.isfunction(method) or name == "__init__":
                continue
            overridden, is_meant = getattr(GRPOTrainer, name, None), hasattr(method, "__override__")
            if overridden is None and is_meant:
                yield f"GRPOTrainer has no {name}, which {trainer_class.__name__} overrides"
            elif overridden is not None and not is_meant:
                yield f"GRPOTrainer has a {name}: {trainer_class.__name__}'s would override it"
            elif overridden is not None:
                parameters = inspect.signature(method).parameters
                expected = [*inspect.signature(overridden).parameters]
                names = [
                    parameter.name
                    for parameter in parameters.values()
                    if parameter.kind not in variadic
                ]
                is_open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
                if not {*names} <= {*expected} if is_open else names != expected:
                    yield f"GRPOTrainer.{name} takes {expected}, {trainer_class.__name__}'s {names}"


def find_used_attributes(module, owner: str) -> set[str]:
    """Return the attributes that a module reads of a variable with this name."""
    return {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == owner
    }


def find_moved_names():
    """Yield names that are looked up as strings, and would be missed silently after a rename."""
    generation = inspect.getsource(vllm_generation)
    for owner in ("generation", "vllm_generation"):
        for name in sorted(find_used_attributes(vllm, owner)):
            if not re.search(rf"\b{name}\b", generation):
                yield f"trl.generation.vllm_generation has no {name}"
    if not hasattr(vllm_generation.VLLMGeneration, "_init_vllm"):
        yield "VLLMGeneration has no _init_vllm, which builds its engine"
    for function, names in (
        (GRPOTrainer._generate_and_score_completions, (*LOSS_COLUMNS, *REFUSED_COLUMNS)),
        (GRPOTrainer._compute_loss, (*LOSS_COLUMNS, "num_items_in_batch", *TOKEN_MEAN_LOSS_TYPES)),
    ):
        source = inspect.getsource(function)
        for name in names:
            if f'"{name}"' not in source:
                yield f"{function.__name__} has no {name}"
    for name in {*TRL_LOSS_FIELDS, *SIZES} - {*GRPOConfig.__dataclass_fields__}:
        yield f"GRPOConfig has no {name}"
    for name in ("fused_lm_head", "shift_labels", "log_probs"):
        if name in inspect.getsource(forward) and name not in inspect.getsource(add_fused_lm_head):
            yield f"the forward that TRL patches has no {name}"
    for owner, name in (
        (GradientState, "_set_sync_gradients"),
        (trl_imports, "is_vllm_available"),
        (accelerate_imports, "_is_package_available"),
    ):
        if not hasattr(owner, name):
            yield f"{owner.__name__} has no {name}"


def test_installed_trl_has_overridden_internals():
    moved = "\n  ".join([*find_moved_methods(), *find_moved_names()])
    assert not moved, (
        f"TRL {trl.__version__} moved what rapid/training/trl overrides:\n  {moved}\nFix it there, "
        "or lower the upper bound of trl in pyproject.toml."
    )


def test_pinned_trl_is_within_version_bounds():
    pinned = re.search(r"^trl==([\d.]+)", (ROOT / "requirements/cpu.txt").read_text(), re.M)[1]
    bounds = re.search(r'"trl>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    lower, upper, version = ([*map(int, v.split("."))] for v in (*bounds.groups(), pinned))
    assert lower <= version < upper
    assert upper == [version[0], version[1] + 1]


@pytest.mark.parametrize("objective", ["rapid", "grpo"])
def test_trl_runs_no_forward_pass_itself(objective, toy_model, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("TRL's own forward pass")

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", refuse)
    assert train_rapid(toy_model, tmp_path, objective, max_steps=4).state.global_step == 4


def test_steps_neither_look_up_packages_nor_move_prompts(toy_model, tmp_path, monkeypatch):
    looked_up, moved, metadata = [], [], importlib.metadata.metadata
    monkeypatch.setattr(
        importlib.metadata, "metadata", lambda name: looked_up.append(name) or metadata(name)
    )
    monkeypatch.setattr("accelerate.data_loader.send_to_device", lambda *rows, **_: moved.append(1))
    train_rapid(toy_model, tmp_path, "rapid", max_steps=4)
    assert len(looked_up) == len({*looked_up})
    assert not moved


def test_prevent_vllm_import_hides_vllm_from_trl(monkeypatch):
    monkeypatch.setattr(trl_imports, "is_vllm_available", lambda: True)
    prevent_vllm_import()
    assert trl_imports.is_vllm_available(min_version="0.1") is False
