"""A TRL that moved what rapid.training.trl bends is noticed here, and what it moved is named."""

import ast
import importlib.metadata
import inspect
import re
from pathlib import Path

import pytest
import trl
from accelerate.state import GradientState
from accelerate.utils import imports as accelerate_imports
from trl import GRPOConfig, GRPOTrainer
from trl import import_utils as trl_imports
from trl.generation import vllm_generation
from trl.trainer.utils import add_fused_lm_head

from rapid.training import forward, gradient, trainer
from rapid.training.config import RapidConfig
from rapid.training.trl import (
    LOSS_COLUMNS,
    REFUSED_COLUMNS,
    checkpoints,
    loss,
    passes,
    prompts,
    remember_packages,
    saving,
    vllm,
    without_vllm,
)
from rapid.training.trl import trainer as bends
from rapid.training.trl.loss import OVER_TOKENS, OwnLoss
from rapid.training.trl.objective import FIELDS
from tests.training.loops import COMMON, make, run

CLASSES = {
    saving.SavingTrainer: saving,
    checkpoints.ResumableTrainer: checkpoints,
    OwnLoss: loss,
    prompts.CheckedPrompts: prompts,
    bends.SamplingTrainer: bends,
    passes.PassTrainer: passes,
    gradient.GradientTrainer: gradient,
    trainer.RapidTrainer: trainer,
}
SIZES = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "generation_batch_size",
)


def uses(module, owner: str) -> set[tuple[str, ...]]:
    """The attributes of `owner` in a module, and the attributes of these: (a,), (a, b)."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        chain = []
        while isinstance(node, ast.Attribute):
            chain.insert(0, node.attr)
            node = node.value
        if chain and isinstance(node, ast.Name) and node.id == owner:
            found.add(tuple(chain[:2]))
    return found


def own(kind, module) -> set[str]:
    """The names that a class of ours defines, itself or in its instances."""
    assigned = (
        target
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    )
    return {*vars(kind), *(one.attr for one in assigned if isinstance(one, ast.Attribute))}


def moved_methods():
    """What the methods that we override look like now."""
    for kind in CLASSES:
        for name, ours in vars(kind).items():
            if not inspect.isfunction(ours) or name == "__init__":
                continue
            theirs = getattr(GRPOTrainer, name, None)
            if theirs is None and getattr(ours, "__override__", False):
                yield f"GRPOTrainer has no {name}, which {kind.__name__} overrides"
            elif theirs is not None and not getattr(ours, "__override__", False):
                yield f"GRPOTrainer has a {name}: {kind.__name__}'s would override it"
            elif theirs is not None:
                has, takes = (inspect.signature(one).parameters for one in (theirs, ours))
                rest = any(one.kind is one.VAR_KEYWORD for one in takes.values())
                others = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
                named = [n for n, one in takes.items() if one.kind not in others]
                if not set(named) <= set(has) if rest else named != list(has):
                    yield f"GRPOTrainer.{name} takes {[*has]}, {kind.__name__}'s {named}"


def moved_attributes(stock: GRPOTrainer, config: RapidConfig):
    """What our classes use of an instance of TRL's."""
    ours = set().union(*(own(*pair) for pair in CLASSES.items()))
    owners = {"args": config, "accelerator": stock.accelerator, "state": stock.state}
    vllms = {"vllm_generation"}  # an attribute where vLLM samples
    for kind, module in CLASSES.items():
        for first, *second in sorted(uses(module, "self")):
            if first not in ours | vllms and not hasattr(stock, first):
                yield f"GRPOTrainer has no attribute {first}, which {kind.__name__} uses"
            if second and first in owners and second[0] not in dir(owners[first]):
                yield f"{first} has no {second[0]}, which {kind.__name__} uses"


def moved_names():
    """What else is called, replaced, or looked for by its name."""
    generation = inspect.getsource(vllm_generation)
    for owner in ("generation", "vllm_generation"):
        for first, *_ in sorted(uses(vllm, owner)):
            if not re.search(rf"\b{first}\b", generation):
                yield f"trl.generation.vllm_generation has no {first}"
    if not hasattr(vllm_generation.VLLMGeneration, "_init_vllm"):
        yield "VLLMGeneration has no _init_vllm, which builds its engine"
    sampled = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    for column in (*LOSS_COLUMNS, *REFUSED_COLUMNS):
        if f'"{column}"' not in sampled:
            yield f"_generate_and_score_completions returns no {column}"
    own_loss = inspect.getsource(GRPOTrainer._compute_loss)
    for name in (*LOSS_COLUMNS, "num_items_in_batch", *OVER_TOKENS):
        if f'"{name}"' not in own_loss:
            yield f"_compute_loss knows no {name}"
    for name in (*FIELDS, *SIZES):
        if name not in GRPOConfig.__dataclass_fields__:
            yield f"GRPOConfig has no {name}"
    for name in ("fused_lm_head", "shift_labels", "log_probs"):
        if name in inspect.getsource(forward) and name not in inspect.getsource(add_fused_lm_head):
            yield f"the forward that TRL patches knows no {name}"
    for owner, name in (
        (GradientState, "_set_sync_gradients"),
        (trl_imports, "is_vllm_available"),
        (accelerate_imports, "_is_package_available"),
    ):
        if not hasattr(owner, name):
            yield f"{owner.__name__} has no {name}"


@pytest.fixture(scope="module")
def stock(toy_model, tmp_path_factory) -> GRPOTrainer:
    """TRL's trainer after a step: some of its attributes are those of a run."""
    sizes = {"per_device_train_batch_size": 4, "max_steps": 1, "max_completion_length": 2}
    config = GRPOConfig(str(tmp_path_factory.mktemp("stock")), **sizes, **COMMON)
    trained = make(
        GRPOTrainer, config, toy_model, lambda completions, **_: [0.0] * len(completions)
    )
    trained.train()
    return trained


def moved(stock: GRPOTrainer) -> list[str]:
    config = RapidConfig("unused", use_cpu=True, bf16=False, report_to=[])
    return [*moved_methods(), *moved_attributes(stock, config), *moved_names()]


def test_the_installed_trl_has_all_that_is_bent(stock):
    found = "\n  ".join(moved(stock))
    assert not found, (
        f"TRL {trl.__version__} moved what rapid/training/trl bends:\n  {found}\nMend it there, or "
        "lower the upper bound of trl in pyproject.toml."
    )


def test_what_is_gone_is_named(stock, monkeypatch):
    monkeypatch.delattr(GRPOTrainer, "_generate_single_turn")
    monkeypatch.delattr(stock, "reward_funcs")
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", lambda self, model, batch: None)
    monkeypatch.delattr(vllm_generation.VLLMGeneration, "_init_vllm")
    monkeypatch.delitem(GRPOConfig.__dataclass_fields__, "delta")
    found = moved(stock)
    assert "_compute_loss knows no num_items_in_batch" in found
    assert [one for one in found if "knows no" not in one] == [
        "GRPOTrainer has no _generate_single_turn, which SamplingTrainer overrides",
        "GRPOTrainer._compute_loss takes ['self', 'model', 'batch'], RapidTrainer's "
        "['self', 'model', 'inputs']",
        "GRPOTrainer has no attribute reward_funcs, which SamplingTrainer uses",
        "VLLMGeneration has no _init_vllm, which builds its engine",
        "GRPOConfig has no delta",
    ]


def test_the_tested_trl_is_within_its_bounds():
    root = Path(trainer.__file__).parents[2]
    pinned = re.search(r"^trl==([\d.]+)", (root / "requirements/cpu.txt").read_text(), re.M)[1]
    bounds = re.search(r'"trl>=([\d.]+),<([\d.]+)"', (root / "pyproject.toml").read_text())
    lower, upper, version = ([*map(int, v.split("."))] for v in (*bounds.groups(), pinned))
    assert lower <= version < upper
    assert upper == [version[0], version[1] + 1]


@pytest.mark.parametrize("objective", ["rapid", "grpo"])
def test_trl_makes_no_forward_pass_of_its_own(objective, toy_model, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("TRL's own forward pass")

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", refuse)
    assert run(toy_model, tmp_path, objective, max_steps=4).state.global_step == 4


def test_steps_do_not_look_up_packages_or_move_prompts_again(toy_model, tmp_path, monkeypatch):
    looked_up, moved, metadata = [], [], importlib.metadata.metadata
    monkeypatch.setattr(
        importlib.metadata, "metadata", lambda name: looked_up.append(name) or metadata(name)
    )
    monkeypatch.setattr("accelerate.data_loader.send_to_device", lambda *rows, **_: moved.append(1))
    run(toy_model, tmp_path, "rapid", max_steps=4)
    assert len(looked_up) == len({*looked_up})
    assert not moved


def test_accelerate_looks_once_if_it_looks_as_it_does_today(monkeypatch):
    looked = []
    name = "_is_package_available"
    monkeypatch.setattr(accelerate_imports, name, lambda package: looked.append(package) or True)
    remember_packages()
    remembering = getattr(accelerate_imports, name)
    remember_packages()
    assert getattr(accelerate_imports, name) is remembering
    assert [remembering(package) for package in "abab"] == [True] * 4
    assert looked == ["a", "b"]
    monkeypatch.delattr(accelerate_imports, name)
    remember_packages()
    assert not hasattr(accelerate_imports, name)


def test_trl_is_told_that_there_is_no_vllm(monkeypatch):
    monkeypatch.setattr(trl_imports, "is_vllm_available", lambda: True)
    without_vllm()
    assert trl_imports.is_vllm_available(min_version="0.1") is False
