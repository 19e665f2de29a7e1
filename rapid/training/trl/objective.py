"""GRPOTrainer's own loss as the objective "trl": when it is chosen, and the defaults it brings.

"trl" is an objective of RapidConfig only, and neither in params.yaml nor in `rapid.algorithms`.
"""

import logging

from rapid.algorithms import ALGORITHMS, RAPID
from rapid.algorithms.base import Algorithm
from rapid.training.trl import TRL_LOSS_FIELDS

logger = logging.getLogger(__name__)


class TrlLoss(Algorithm):
    """GRPOTrainer's loss, with TRL's advantages: see `rapid.training.trl.loss_trainer`."""

    name = "trl"
    label = "GRPO"
    scale_rewards = "group"


TRL = TrlLoss()
# Values of `TRL_LOSS_FIELDS` that do not choose "trl", although they differ from TRL's default,
# because RAPID always trains with them.
SAME_AS_RAPID = {
    "scale_rewards": ("none", False),
    "router_aux_loss_coef": (0,),
    "vllm_importance_sampling_correction": (False,),
}


def get_objectives() -> dict[str, Algorithm]:
    """Return the allowed objectives of RapidConfig by name: the RL algorithms, and "trl"."""
    algorithms = {
        name: algorithm for name, algorithm in ALGORITHMS.items() if not algorithm.is_supervised
    }
    return algorithms | {TRL.name: TRL}


def explicit_trl_settings(config) -> dict[str, object]:
    """Return the settings that choose GRPOTrainer's loss, with their values.

    These are the `TRL_LOSS_FIELDS` that the user passed (`config.explicit`) with a value other than
    None, or that differ from their default, except for the values in `SAME_AS_RAPID`.
    """
    fields = config.__dataclass_fields__
    values = {name: getattr(config, name) for name in TRL_LOSS_FIELDS}
    return {
        name: value
        for name, value in values.items()
        if (value != fields[name].default or (name in config.explicit and value is not None))
        and value not in SAME_AS_RAPID.get(name, ())
    }


def resolve_objective(config) -> None:
    """Set the objective where it is None: RAPID, unless settings ask for GRPOTrainer's own loss."""
    if config.objective is not None:
        return
    settings = explicit_trl_settings(config)
    config.objective = TRL.name if settings else RAPID.name
    if settings:
        config.origins["objective"] = f"because of {', '.join(settings)}"
        logger.warning(
            "This trains with GRPOTrainer's own loss (objective='trl'), not with "
            "RAPID's, because these settings of GRPOTrainer's loss are set: %s. Remove them to "
            "train with RAPID, or set objective='trl' to silence this warning.",
            ", ".join(f"{name}={value!r}" for name, value in settings.items()),
        )


def resolve_defaults(config) -> None:
    """Replace None in fields whose default depends on the objective; "trl" has TRL's defaults.

    There are two exceptions. disable_dropout is True off-policy for "trl" too: with dropout, log pi
    and log mu would come from different networks. With use_rollout_logps, log mu has the difference
    between vLLM and the policy already, and TRL's correction would weight it twice.
    """
    is_trl_loss = config.objective == TRL.name
    scale_by_bool = {True: "group", False: "none"}  # as in TRL
    config.scale_rewards = scale_by_bool.get(config.scale_rewards, config.scale_rewards)
    defaults = {
        "scale_rewards": config.algorithm.scale_rewards,
        "disable_dropout": not is_trl_loss or config.is_off_policy,
        "vllm_importance_sampling_correction": is_trl_loss and not config.use_rollout_logps,
        "router_aux_loss_coef": None if is_trl_loss else 0.0,  # None: the model's own
    }
    for name, value in defaults.items():
        if getattr(config, name) is None:
            setattr(config, name, value)
