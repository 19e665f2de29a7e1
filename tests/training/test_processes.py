"""Several processes learn the same as one, under DDP and DeepSpeed ZeRO-2 as in the paper.

Scripted completions give all of them the same inference batches. Some settings have the paper's
N_step = 4 and groups of 4, which processes have to shard.
"""

import json
import multiprocessing
import os
import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import yaml
from accelerate.state import AcceleratorState

from rapid.training import generation
from rapid.training.batches import VLLM_RATIO_COLUMN
from rapid.training.processes import gather_batch
from tests.conftest import ROOT
from tests.subprocesses import environments, python
from tests.training import worker
from tests.training.loops import (
    ALL_SAVINGS,
    NO_SAVINGS,
    ROUNDING,
    ScriptedTrainer,
    assert_same_learning,
    build_rapid_trainer,
    get_weights,
    prefill_second_half,
    train_rapid,
)

WHOLE_GROUPS = {
    f"{objective}-{name}": {"objective": objective, **settings}
    for objective in ("rapid", "dapo")
    for name, settings in {"plain": NO_SAVINGS, "saved": ALL_SAVINGS}.items()
}
WHOLE_GROUPS["rapid-ungraded"] = {"objective": "rapid", "reward": "partial_reward", **NO_SAVINGS}
ADAPTIVE = {"entropy_coef": 0.1, "use_adaptive_entropy": True, "entropy_target": 5.3}
WHOLE_GROUPS["trl"] = {
    "objective": "trl",
    "H": 2,
    "reward": "partial_reward",
    **ADAPTIVE,
    **ALL_SAVINGS,
}
ONE_GROUP = {"n_step": 4, "num_generations": 4, "max_steps": 9}
PAIR = {"n_step": 2, "num_generations": 2}
ADAPTED = {"objective": "rapid", "learning_rate": 1.0, **ALL_SAVINGS}
WHOLE_GROUPS["lora"] = {"adapter": "lora", **ADAPTED}
WHOLE_GROUPS["prefix"] = {"adapter": "prefix", **ADAPTED}
WHOLE_GROUPS["prefix-of-one-group"] = {"adapter": "prefix", **ADAPTED, **ONE_GROUP}
SHARDED = {
    "sharded-plain": {"objective": "rapid", "H": 2, **ONE_GROUP, **NO_SAVINGS},
    "sharded-rapid": {"objective": "rapid", **ONE_GROUP, **ALL_SAVINGS},
    "sharded-pg": {"objective": "pg", **ONE_GROUP, **ALL_SAVINGS},
    "sharded-grpo": {"objective": "grpo", **ONE_GROUP, **ALL_SAVINGS},
    "sharded-dapo": {"objective": "dapo", "dynamic_sampling_rounds": 3, **ONE_GROUP, **ALL_SAVINGS},
    "sharded-trl": {"objective": "trl", "H": 2, "beta": 0.1, **ONE_GROUP, **ALL_SAVINGS},
    "sharded-ungraded": {
        "objective": "rapid",
        "reward": "partial_reward",
        **ONE_GROUP,
        **ALL_SAVINGS,
    },
    "sharded-pair": {"objective": "rapid", "H": 2, **ONE_GROUP, **PAIR, **ALL_SAVINGS},
}
# Micro-batches smaller than the part of a group that a process has: all of it, or two rows.
SPLIT = {"pack": True, "token_budget": None, "micro_batch_size": 1}
SMALL = {
    "small-rapid": {"objective": "rapid", **ALL_SAVINGS, **SPLIT, "token_budget": 24},
    "small-m2po": {"objective": "m2po", "H": 2, **ALL_SAVINGS, **SPLIT, "pack": False},
    "small-grpo": {"objective": "grpo", "H": 2, "beta": 0.1, **ALL_SAVINGS, **SPLIT},
    "small-trl": {"objective": "trl", "H": 2, **ALL_SAVINGS, **SPLIT},
    "small-sharded-topr": {"objective": "topr", "H": 2, **ONE_GROUP, **ALL_SAVINGS, **SPLIT},
    "small-sharded-rapid": {"objective": "rapid", **ONE_GROUP, **ALL_SAVINGS, **SPLIT},
    "small-sharded-grpo": {
        "objective": "grpo",
        "H": 2,
        "beta": 0.1,
        **ONE_GROUP,
        **ALL_SAVINGS,
        **SPLIT,
    },
}
# Few groups, some of which may lack signal: a process may have none while others have one.
ODD_GROUPS = {"n_step": 6, "num_generations": 3, "H": 2, "max_steps": 8, **ALL_SAVINGS}
SMALL |= {
    "odd-rapid": {"objective": "rapid", **ODD_GROUPS},
    "odd-grpo": {"objective": "grpo", "beta": 0.1, **ODD_GROUPS},
    "odd-trl": {"objective": "trl", "beta": 0.1, **ODD_GROUPS, "n_step": 3},
}
# In the first step only groups with unequal rewards are run, in the second all rewarded groups.
REUSED = {"n_step": 32, "H": 1, "reuse": 2, "reuse_logp": False, "reward": "solved_reward"}
SMALL["reused-rapid"] = {"objective": "rapid", **REUSED}
# Sampled, not scripted. H = 3 makes processes sample parts of groups.
SAMPLED = {
    "sampled": SHARDED["sharded-rapid"] | {"H": 3, "scripted": False, "skip_zero_groups": False}
}
# A save is due in the middle of the second inference batch, and waits for its end.
SAMPLED["saved"] = SAMPLED["sampled"] | {"save_strategy": "steps", "save_steps": 5}
RESUMED = {"resumed": SAMPLED["saved"] | {"resumed": "saved/checkpoint-6"}}
# Each process evaluates two completions of groups of four, and the last batch of three prompts is
# not full: transformers' Trainer would weight the means of processes unequally.
EVALUATED = {
    f"evaluated-{objective}": SHARDED["sharded-rapid"]
    | {"objective": objective, "H": 1, "max_steps": 2}
    | {"per_device_eval_batch_size": size, "evaluated": prompts}
    for objective, size, prompts in (("rapid", 2, 3), ("grpo", 6, 3), ("trl", 2, 4))
}
LOOPS = WHOLE_GROUPS | SHARDED | SMALL


def launch(backend: str, processes: int, loops: dict, model, folder) -> list[dict]:
    """Train the loops in several processes; return each process's results by name of the loop."""
    (folder / "loops.json").write_text(json.dumps(loops))
    arguments = folder / "loops.json", model, folder
    if backend == "ddp":
        fork_processes(processes, worker.main, *arguments)
    else:
        launch_by_accelerate(processes, *arguments)
    return [
        {name: torch.load(folder / f"{name}.{process}.pt") for name in loops}
        for process in range(processes)
    ]


def fork_processes(count: int, work: Callable, *arguments) -> None:
    """Run `work` in forks of this process, which has imported everything."""

    def start(environment: dict[str, str]) -> None:
        os.environ |= environment
        AcceleratorState._reset_state(reset_partial_state=True)  # set by earlier tests
        work(*arguments)

    fork = multiprocessing.get_context("fork").Process
    processes = [fork(target=start, args=(environment,)) for environment in environments(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(3600)
    statuses = {process.exitcode for process in processes}
    for process in processes:
        process.kill()  # one may wait forever for another that failed
    assert statuses == {0}


def launch_by_accelerate(processes: int, *arguments) -> None:
    """Launch workers with ZeRO-2."""
    config = yaml.safe_load((ROOT / "workflow/accelerate/zero2.yaml").read_text())
    config |= {"num_processes": processes, "use_cpu": True}
    file = arguments[-1] / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    launcher = "-m", "accelerate.commands.launch", "--main_process_port", 0, "--config_file", file
    python(*launcher, "-m", "tests.training.worker", *arguments, DS_ACCELERATOR="cpu")


@pytest.fixture(scope="module", params=["ddp", pytest.param("zero2", marks=pytest.mark.slow)])
def two_processes(request, toy_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return launch(request.param, 2, LOOPS | SAMPLED | RESUMED | EVALUATED, toy_model, folder)


@pytest.fixture(scope="module", params=["ddp", "zero2"])
def four_processes(request, toy_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"{request.param}-4")
    return launch(request.param, 4, SHARDED | SAMPLED, toy_model, folder)


@pytest.fixture(scope="module")
def train_alone(toy_model, tmp_path_factory):
    """A function that returns the weights after and before a loop in one process."""
    weights_by_settings = {}

    def get_weights_after_and_before(name: str) -> tuple[torch.Tensor, torch.Tensor]:
        settings = LOOPS[name] | NO_SAVINGS | ({"micro_batch_size": 16} if name in SMALL else {})
        key = json.dumps(settings, sort_keys=True)
        if key not in weights_by_settings:
            folder = tmp_path_factory.mktemp("alone")
            trainer = build_rapid_trainer(
                toy_model, folder, trainer_class=ScriptedTrainer, dtype=torch.float32, **settings
            )
            start = get_weights(trainer)
            trainer.train()
            weights_by_settings[key] = get_weights(trainer), start
        return weights_by_settings[key]

    return get_weights_after_and_before


def test_gathered_batch_is_padded_to_longest():
    def pad(value, dim, pad_index, pad_first):
        """Pad as if another process had four tokens."""
        missing = 4 - value.size(dim)
        sides = (missing, 0) if pad_first else (0, missing)
        return torch.nn.functional.pad(value, sides, value=pad_index)

    accelerator = SimpleNamespace(pad_across_processes=pad, gather=lambda value: value)
    batch = {"prompt_ids": [[5, 6]], "completion_ids": [[7, 8]], "completion_mask": [[1, 1]]}
    batch = {name: torch.tensor(value) for name, value in batch.items()}
    batch[VLLM_RATIO_COLUMN] = torch.tensor([[0.5, 0.5]])
    gathered = gather_batch(batch, accelerator, pad_id=9)
    assert {name: value.tolist() for name, value in gathered.items()} == {
        "prompt_ids": [[9, 9, 5, 6]],
        "completion_ids": [[7, 8, 9, 9]],
        "completion_mask": [[1, 1, 0, 0]],
        VLLM_RATIO_COLUMN: [[0.5, 0.5, 1.0, 1.0]],
    }


def check_same_learning(processes: list[dict], name: str, train_alone) -> None:
    """All processes end with one process's weights, and run equally many micro-batches a step."""
    counts = []
    for process in processes:
        result = process[name]
        assert result["processes"] == len(processes)
        assert_same_learning(result["weights"], *train_alone(name))
        assert result["log"][0]["rapid/run"] <= 1 + 1e-6
        counts.append([len(rows) for rows in result["rows"]])
    assert all(count == counts[0] for count in counts)
    if name.endswith("plain"):
        assert all(row["rapid/run"] == pytest.approx(1) for row in processes[0][name]["log"])
    if name in SHARDED:  # all processes run each group
        rows = {
            row_count
            for process in processes
            for rows in process[name]["rows"]
            for row_count in rows
            if row_count
        }
        assert rows == {SHARDED[name]["n_step"] // len(processes) or 1}


@pytest.mark.parametrize("name", LOOPS)
def test_two_processes_learn_same_as_one(two_processes, train_alone, name):
    check_same_learning(two_processes, name, train_alone)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARDED)
def test_four_processes_learn_same_as_one(four_processes, train_alone, name):
    check_same_learning(four_processes, name, train_alone)


@pytest.mark.parametrize(
    "name",
    ["rapid-plain", "sharded-plain", "small-trl", "small-sharded-rapid", "sampled", "resumed"],
)
def test_overview_counts_what_each_process_does(two_processes, name):
    first, second = (process[name] for process in two_processes)
    block, *batches = first["overview"]
    assert not second["overview"]  # only the first process prints
    assert ", 2 processes" in block
    pattern = r"run +(\d+) steps, (\d+) batch(?:es)?, (\d+) completions"
    steps, count, completions = map(int, re.search(pattern, block).groups())
    passes = [len(rows) for rows in first["rows"]]
    assert (steps, count) == (len(passes), len(batches))
    if (
        name == "sampled"
    ):  # otherwise completions are scripted, or those of an earlier run count too
        assert completions == first["completions"] + second["completions"]
    if about := re.search(r"about (\d+) in a step in each process", block):
        assert int(about[1]) == max(passes)  # fewer where completions are short
    assert bool(about) == (name not in SAMPLED | RESUMED)  # those have a token_budget
    counted = [int(re.search(r"(\d+) pass(?:es)?\)", batch)[1]) for batch in batches]
    assert sum(counted) == sum(passes)


@pytest.mark.parametrize("name", SMALL)
def test_two_processes_log_same_as_one_with_small_micro_batches(
    two_processes, toy_model, tmp_path, name
):
    """Losses and metrics of importance weights include the rows of other processes."""
    settings = SMALL[name] | NO_SAVINGS | {"micro_batch_size": 16}
    trainer = build_rapid_trainer(
        toy_model, tmp_path, trainer_class=ScriptedTrainer, dtype=torch.float32, **settings
    )
    trainer.train()
    for row, expected in zip(
        two_processes[0][name]["log"],
        [row for row in trainer.state.log_history if "rapid/run" in row],
        strict=True,
    ):
        for key in ("loss", "rapid/weight", "rapid/clip_fraction", "rapid/kl", "rapid/entropy"):
            if key in expected and row["rapid/run"] == pytest.approx(expected["rapid/run"]):
                assert row[key] == pytest.approx(expected[key], rel=1e-3, abs=2e-4), key


def test_groups_without_signal_are_replaced(two_processes):
    assert sum(process["sharded-dapo"]["completions"] for process in two_processes) > 9 * 4


def check_sampled_groups(processes: list[dict]):
    results = [process["sampled"] for process in processes]
    assert all(torch.equal(result["weights"], results[0]["weights"]) for result in results)
    assert sum(result["completions"] for result in results) == 9 * 4
    assert max(row["rapid/sampler_mismatch"] for row in results[0]["log"][::3]) < ROUNDING


def test_two_processes_sample_sharded_groups_from_policy(two_processes):
    check_sampled_groups(two_processes)


@pytest.mark.slow
def test_four_processes_sample_sharded_groups_from_policy(four_processes):
    check_sampled_groups(four_processes)


def test_two_processes_resume_exactly(two_processes):
    for process in two_processes:
        saved, resumed = process["saved"], process["resumed"]
        assert torch.equal(resumed["weights"], saved["weights"])
        assert resumed["completions"] == saved["completions"]
        for row, expected_row in zip(resumed["log"], saved["log"], strict=True):
            without_time = {"step_time": None}
            assert row | without_time == expected_row | without_time


def train_with_wrong_sampler(model, folder) -> None:
    """Train in two processes, of which the second ignores the first half of each prompt.

    Each writes the error that stopped it into the folder.
    """
    trainer = build_rapid_trainer(model, folder, "pg", dtype=torch.float32)
    process = trainer.accelerator.process_index

    if process == 1:
        generation.prefill_prompts = prefill_second_half
    with torch.no_grad():
        for name, weight in trainer.model.named_parameters():
            weight.mul_(10 if "_proj" in name else 1)  # so that a prompt matters
    with pytest.raises(RuntimeError) as error:
        trainer.train()
    (folder / f"{process}.txt").write_text(str(error.value))


def test_wrong_sampler_in_one_process_stops_both(toy_model, tmp_path):
    fork_processes(2, train_with_wrong_sampler, toy_model, tmp_path)
    first, second = ((tmp_path / f"{process}.txt").read_text() for process in range(2))
    assert first == second
    assert first.startswith("step 1: completions are not sampled from the policy")


@pytest.mark.parametrize("name", EVALUATED)
def test_processes_with_sharded_groups_evaluate_same_as_one(
    two_processes, toy_model, tmp_path, name
):
    settings = {key: value for key, value in EVALUATED[name].items() if key != "evaluated"}
    settings["per_device_eval_batch_size"] *= 2
    single = train_rapid(
        toy_model, tmp_path, trainer_class=ScriptedTrainer, dtype=torch.float32, **settings
    )
    expected = single.evaluate(single.train_dataset.select(range(EVALUATED[name]["evaluated"])))
    assert expected["eval_reward_std"] > 0
    for process in two_processes:
        metrics = process[name]["evaluation"]
        assert metrics.keys() == expected.keys()
        for key, value in expected.items():
            if "runtime" not in key and "per_second" not in key:
                assert metrics[key] == pytest.approx(value, rel=ROUNDING, abs=ROUNDING), key


@pytest.mark.parametrize("objective", ["rapid", "dapo"])
def test_work_is_balanced_with_skipped_groups(two_processes, objective):
    """The numbers of groups that two processes run differ by at most one."""
    first, second = (
        [sum(rows) for rows in process[f"{objective}-saved"]["rows"]] for process in two_processes
    )
    assert sum(first) + sum(second) < 8 * 16  # something was skipped
    assert max(abs(a - b) for a, b in zip(first, second, strict=True)) <= 4
