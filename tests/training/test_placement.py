"""The policy is whole and on one device; anything that divides it is refused."""

from types import SimpleNamespace

import pytest
import torch
from accelerate import ParallelismConfig
from trl.trainer import grpo_trainer

from rapid import RapidConfig, RapidTrainer
from rapid.training.trl.placement import find_refused_placements, use_one_device
from tests.training.loops import COMMON, ScriptedTrainer, make_trainer, text_sum_reward

GPU = torch.device("cuda", 0)
SPREAD_MODEL = SimpleNamespace(hf_device_map={"model": 0, "lm_head": 1})
WHOLE = {"deepspeed_plugin": None, "fsdp": None, "parallelism_config": None}


def list_messages(model="name", **settings) -> list[str]:
    return [*find_refused_placements(SimpleNamespace(**WHOLE | settings), model)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"deepspeed_plugin": SimpleNamespace(zero_stage=2)},
        {"parallelism_config": ParallelismConfig(dp_replicate_size=2)},
        {"model": SimpleNamespace(hf_device_map={"model": 0, "lm_head": 0}, tp_size=None)},
    ],
)
def test_whole_models_are_accepted(settings):
    assert not list_messages(**settings)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"deepspeed_plugin": SimpleNamespace(zero_stage=3)}, "ZeRO-3"),
        ({"fsdp": True}, "FSDP"),
        ({"parallelism_config": ParallelismConfig(tp_size=2)}, "parallelism_config with tp_size=2"),
        ({"parallelism_config": ParallelismConfig(cp_size=4)}, "parallelism_config with cp_size=4"),
    ],
)
def test_forward_passes_that_processes_share_are_refused(settings, name):
    [message] = list_messages(**settings)
    assert message.startswith(f"{name}: processes share each forward pass")
    assert "use DDP or ZeRO-2" in message


def test_settings_of_the_launcher_are_refused(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("ACCELERATE_USE_PARALLELISM_CONFIG", "true")
    monkeypatch.setenv("PARALLELISM_CONFIG_TP_SIZE", "2")
    fsdp, tensor_parallelism = list_messages()
    assert fsdp.startswith("FSDP: ")
    assert tensor_parallelism.startswith("parallelism_config with tp_size=2: ")


def test_divided_models_are_refused():
    [message] = list_messages(SPREAD_MODEL)
    assert message.startswith("the model is spread over the devices 0, 1, ")
    [message] = list_messages(SimpleNamespace(tp_size=2))
    assert "tensor parallelism" in message


def test_trainer_refuses_before_it_loads_a_model(monkeypatch, tmp_path):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ValueError, match=r"^FSDP: .*use DDP or ZeRO-2"):
        RapidTrainer("no model", text_sum_reward, args=RapidConfig(str(tmp_path), **COMMON))


def test_spread_model_that_trl_loads_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(grpo_trainer, "create_model_from_path", lambda *_, **__: SPREAD_MODEL)
    config = RapidConfig(str(tmp_path), **COMMON)
    with pytest.raises(ValueError, match=r"spread over the devices 0, 1, .*`accelerate"):
        RapidTrainer("name", text_sum_reward, args=config)


@pytest.mark.parametrize(
    ("device", "settings", "device_map"),
    [
        (GPU, {}, {"": GPU}),
        (GPU, {"device_map": None}, None),  # TRL's choice with several processes
        (GPU, {"device_map": "cuda:1"}, "cuda:1"),
        (torch.device("cpu"), {}, "unset"),
    ],
)
def test_models_are_loaded_onto_the_device_of_the_process(
    monkeypatch, device, settings, device_map
):
    settings_of_loads = []

    def load(model_id, **named):
        settings_of_loads.append(named)
        return SimpleNamespace()

    monkeypatch.setattr(grpo_trainer, "create_model_from_path", load)
    with use_one_device(SimpleNamespace(n_gpu=1, device=device, **WHOLE), "name"):
        grpo_trainer.create_model_from_path("name", **settings)
    [named] = settings_of_loads
    assert named.get("device_map", "unset") == device_map
    assert grpo_trainer.create_model_from_path is load


def test_one_of_several_visible_gpus_is_used_with_a_warning(toy_model, tmp_path, caplog):
    config = RapidConfig(str(tmp_path), max_steps=1, max_completion_length=4, **COMMON)
    config._n_gpu = 4
    trainer = make_trainer(ScriptedTrainer, config, toy_model, text_sum_reward)
    assert trainer.args.n_gpu == 1
    [message] = [message for message in caplog.messages if "GPUs are visible" in message]
    assert message.startswith("4 GPUs are visible, but this process trains on cpu only")
    assert "`accelerate launch --num_processes 4`" in message
    trainer.train()
    assert trainer.state.global_step == 1
