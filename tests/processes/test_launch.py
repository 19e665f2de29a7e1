"""Arguments that accelerate and srun get; tests/end_to_end/test_processes.py runs the processes."""

import pytest
from torch.distributed.launcher.api import LaunchConfig

from rapid.cli import run
from rapid.config.params import load
from rapid.config.specs import Run, build_train_spec
from rapid.processes import launch


@pytest.fixture(autouse=True)
def restore_environment(monkeypatch):
    """Restore after each test the variables that a launch sets, and unset them before."""
    for name in ("DS_ACCELERATOR", launch.SHUTDOWN_VARIABLE):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def spec(values):
    values["compute"] |= {"processes": 4, "nodes": 2, "threads": 3}
    values["sft"]["micro_batch"] = 4
    return build_train_spec(
        load(values), Run(benchmark="math", model="tiny-qwen2", algorithm="rapid-H4", seed=1)
    )


def test_accelerate_gets_the_processes_and_machines_of_the_job(spec, monkeypatch, tmp_path):
    launched_args, out = [], str(tmp_path / "out")
    monkeypatch.setattr("accelerate.commands.launch.launch_command", launched_args.append)
    launch.launch_processes(spec, ["model", "data", out], "first", 1234, rank=1)
    (arguments,) = launched_args
    assert (arguments.num_processes, arguments.num_machines, arguments.machine_rank) == (4, 2, 1)
    assert (arguments.main_process_ip, arguments.main_process_port) == ("first", 1234)
    assert arguments.use_cpu and arguments.module
    assert arguments.training_script_args == [spec.model_dump_json(), "model", "data", out]
    assert arguments.log_dir.startswith(out) and not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(("setting", "seconds"), [(None, "600"), ("60", "60")])
def test_processes_have_time_to_save_after_a_signal(spec, monkeypatch, tmp_path, setting, seconds):
    """torch's launcher reads the variable when it starts, and would kill them after 30 seconds."""
    seconds_of_launches = []
    if setting:
        monkeypatch.setenv(launch.SHUTDOWN_VARIABLE, setting)
    monkeypatch.setattr(
        "accelerate.commands.launch.launch_command",
        lambda _: seconds_of_launches.append(LaunchConfig(1, 1, 1).shutdown_timeout),
    )
    launch.launch_processes(spec, ["model", "data", str(tmp_path)])
    assert seconds_of_launches == [int(seconds)]


def test_srun_starts_a_launcher_on_each_node(spec, monkeypatch):
    commands = []
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setattr("os.execvp", lambda program, command: commands.append(command))
    launch.launch_on_nodes(spec, ["model", "data", "out"])
    (command,) = commands
    assert {"--nodes=2", "--ntasks=2", "--cpus-per-task=6"} <= set(command)
    assert not any(part.startswith("--gpus") for part in command)


def test_srun_gets_as_many_gpus_on_each_node(spec, monkeypatch):
    commands = []
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setattr("os.execvp", lambda program, command: commands.append(command))
    compute = spec.compute.model_copy(update={"device": "gpu"})
    launch.launch_on_nodes(spec.model_copy(update={"compute": compute}), ["model", "data", "out"])
    assert {"--gpus=4", "--gpus-per-node=2"} <= set(commands[0])


def test_several_nodes_without_slurm_are_refused_with_advice(spec, monkeypatch, capsys):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    arguments = ["--model", "m", "--data", "d", "--out", "o"]
    assert run(["train", "--spec", spec.model_dump_json(), *arguments]) == 2
    assert "compute.nodes: 2: only a SLURM job has several servers" in capsys.readouterr().err
