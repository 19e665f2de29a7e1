"""RAPID: large inference batches, several off-policy policy-gradient steps on each.

`from rapid import RapidConfig, RapidTrainer` is the trainer on its own; the rest of the package are
the stages of the pipeline that the `rapid` command runs.
"""

__version__ = "0.1.0"


def __getattr__(name: str):
    # torch and TRL take seconds to import: only who asks for the trainer pays for them.
    if name == "RapidConfig":
        from rapid.training.config import RapidConfig

        return RapidConfig
    if name == "RapidTrainer":
        from rapid.training.trainer import RapidTrainer

        return RapidTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
