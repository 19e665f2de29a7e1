"""RAPID: sample a large inference batch, then take several policy-gradient steps on it.

An inference batch has the completions of H optimizer steps, so all steps except the first are
off-policy. `from rapid import RapidConfig, RapidTrainer` imports the trainer, which is in
`rapid.training`. `rapid.rewards` has reward functions for any trainer. Most other modules are the
stages of the pipeline and the `rapid` command.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["RapidConfig", "RapidTrainer"]
__version__ = "1.0.0rc1"

if TYPE_CHECKING:
    from rapid.training.config import RapidConfig
    from rapid.training.trainer import RapidTrainer
else:  # importing torch and TRL takes seconds, so the trainer is imported when it is first used

    def __getattr__(name: str):
        module = {"RapidConfig": "config", "RapidTrainer": "trainer"}.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"rapid.training.{module}"), name)
