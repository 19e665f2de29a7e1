"""RAPID: large inference batches, several off-policy policy-gradient steps on each.

`from rapid import RapidConfig, RapidTrainer` is the trainer on its own; the rest of the package are
the stages of the pipeline that the `rapid` command runs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["RapidConfig", "RapidTrainer"]
__version__ = "0.1.0"

if TYPE_CHECKING:
    from rapid.training.config import RapidConfig
    from rapid.training.trainer import RapidTrainer
else:  # torch and TRL take seconds to import: only who asks for the trainer pays for them

    def __getattr__(name: str):
        home = {"RapidConfig": "config", "RapidTrainer": "trainer"}.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"rapid.training.{home}"), name)
