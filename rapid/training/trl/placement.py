"""Keeps the policy whole: every process has all weights, on one device.

RapidTrainer's processes make different numbers of forward passes. For example, a process leaves out
dummies when it computes log mu, and each tries micro-batches of its own sizes. So a forward pass
must not wait for other processes, as it does if they share it (ZeRO-3, FSDP, tensor parallelism).
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from accelerate import ParallelismConfig
from accelerate.utils import parse_flag_from_env
from trl.trainer import grpo_trainer

logger = logging.getLogger(__name__)
# Prefixes of the sizes in accelerate's ParallelismConfig with which processes share forward passes:
# by sharding weights, and by tensor, context and sequence parallelism.
PARALLELISM = ("dp_shard", "tp", "cp", "sp")
# Devices for which TRL chooses no device_map.
PLAIN_DEVICES = ("cpu", "mps")


def find_refused_placements(args, model: Any) -> Iterator[str]:
    """Yield a message for each setting that divides forward passes among processes or devices.

    Args:
        args: the `RapidConfig`.
        model: the policy, or its name.
    """
    names = []
    # `accelerate launch` passes these settings in environment variables.
    if args.deepspeed_plugin is not None and args.deepspeed_plugin.zero_stage == 3:
        names.append("ZeRO-3")
    if args.fsdp or parse_flag_from_env("ACCELERATE_USE_FSDP"):
        names.append("FSDP")
    parallelism = args.parallelism_config
    if parallelism is None and parse_flag_from_env("ACCELERATE_USE_PARALLELISM_CONFIG"):
        parallelism = ParallelismConfig()  # reads the sizes from environment variables
    for name in (f"{kind}_size" for kind in PARALLELISM):
        if (size := getattr(parallelism, name, 1)) > 1:
            names.append(f"parallelism_config with {name}={size}")
    for name in names:
        yield (
            f"{name}: processes share each forward pass and wait for each other in it, but those "
            "of RapidTrainer make different numbers of forward passes: use DDP or ZeRO-2. To save "
            "memory, train an adapter (peft_config), or lower micro_batch_size"
        )
    yield from _find_divided_model(model)


def _find_divided_model(model: Any) -> Iterator[str]:
    """Yield a message if a loaded model is divided among devices or processes."""
    device_map = getattr(model, "hf_device_map", None) or {}
    devices = sorted({*map(str, device_map.values())})
    if len(devices) > 1:
        yield (
            f"the model is spread over the devices {', '.join(devices)}, but RapidTrainer needs it "
            "on one: load it without device_map. To use several GPUs, start the script with "
            "`accelerate launch --num_processes N`, which gives each process a GPU"
        )
    if (getattr(model, "tp_size", None) or 1) > 1:
        yield (
            "the model is loaded with tensor parallelism, but RapidTrainer needs all weights in "
            "every process: load it without tp_plan and distributed_config"
        )


@contextmanager
def use_one_device(args, model: Any) -> Iterator[None]:
    """Within this context, let TRL and Trainer place the policy on `args.device` only.

    If a process sees several GPUs, TRL spreads the policy and its reference over all of them if it
    loads them (device_map="auto"), and Trainer replicates a policy that is already loaded
    (`nn.DataParallel`). A `Decoder` samples from neither.

    Args:
        args, model: see `find_refused_placements`.

    Raises:
        ValueError: a placement is refused, or the user's own device_map divides a model.
    """
    if messages := [*find_refused_placements(args, model)]:
        raise ValueError("\n".join(messages))
    if args.n_gpu > 1:
        logger.warning(
            "%d GPUs are visible, but this process trains on %s only. To use all of them, start "
            "the script with `accelerate launch --num_processes %d`. To use one without this "
            "warning, set CUDA_VISIBLE_DEVICES=0",
            args.n_gpu,
            args.device,
            args.n_gpu,
        )
        args._n_gpu = 1  # as Trainer itself does for a model that it must not replicate
    load = grpo_trainer.create_model_from_path

    def load_whole(model_id: str, *arguments: Any, **settings: Any) -> Any:
        # With several processes TRL passes a device_map of None.
        if args.device.type not in PLAIN_DEVICES:
            settings.setdefault("device_map", {"": args.device})
        model = load(model_id, *arguments, **settings)
        if messages := [*_find_divided_model(model)]:
            raise ValueError("\n".join(messages))
        return model

    with patch.object(grpo_trainer, "create_model_from_path", load_whole):
        yield
