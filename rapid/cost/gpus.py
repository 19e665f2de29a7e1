"""Named GPUs with their published rates, from gpus.yaml."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from rapid.artifacts.files import BadInput

FILE = Path(__file__).with_name("gpus.yaml")


class UnknownGpu(BadInput):
    """A GPU without published rates here."""


@dataclass(frozen=True)
class Gpu:
    """One GPU: bytes of memory, bytes a second of memory and of the link, operations a second."""

    name: str
    memory: float
    bandwidth: float
    bf16: float
    fp32: float
    link: float

    def flops(self, precision: str) -> float:
        """Operations a second in a precision of params.yaml."""
        return self.bf16 if precision == "bfloat16" else self.fp32


@cache
def gpus() -> dict[str, Gpu]:
    """All that are known, by short name."""
    giga, tera = ("memory", "bandwidth", "link"), ("bf16", "fp32")
    return {
        key: Gpu(
            name=row["name"],
            **{name: row[name] * 1e9 for name in giga},
            **{name: row[name] * 1e12 for name in tera},
        )
        for key, row in yaml.safe_load(FILE.read_text(encoding="utf-8")).items()
    }


def gpu(name: str) -> Gpu:
    """The GPU of a short name.

    Raises:
        UnknownGpu: there are no rates for it; the message says which there are.
    """
    try:
        return gpus()[name.lower()]
    except KeyError:
        raise UnknownGpu(
            f"--gpu {name}: no published rates for it; known: {', '.join(gpus())}. For another, "
            f"measure: run a job on it and give its folder to --calibrate"
        ) from None
