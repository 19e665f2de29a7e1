"""The parts of the benchmark, as parts.yaml declares them: each an experiment or several."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path

import yaml

TABLE = yaml.safe_load((Path(__file__).parent / "parts.yaml").read_text(encoding="utf-8"))
PARTS: dict[str, dict] = TABLE["parts"]
DEFAULT_PARTS = "".join(letter for letter, part in PARTS.items() if "on_demand" not in part)


@dataclass(frozen=True)
class Setting:
    """The settings that both sides of a comparison have in common."""

    H: int = 4  # optimizer steps on an inference batch
    n_step: int = 16  # completions of an optimizer step
    group: int = 4  # completions of a prompt
    micro_batch: int = 8  # completions of a forward and backward pass
    length: int = 80  # tokens that a completion may have
    fixed_length: bool = False  # all completions are as long as that
    bf16: bool = False  # compute in bfloat16 where float32 is not needed
    checkpointing: bool = False  # activations are computed anew in the backward pass
    scripted: bool = False  # completions are made up, none is sampled

    @property
    def inference_batch(self) -> int:
        """The completions that are sampled at once."""
        return self.H * self.n_step


@dataclass(frozen=True)
class Experiment:
    """Training loops, or graders, to be measured side by side."""

    name: str
    subject: str  # the name of a model or of a benchmark, or a folder of tests
    setting: Setting
    measure: str = "time_in_turns"  # the name of a function in performance.measures
    sides: tuple[str, ...] = ()
    rates: tuple[float | None, ...] = (None,)  # solve rates; None is the real grader
    repeats: int = 100  # samples of each side, at most
    completions: int = 0  # of a sample
    varied: str | None = None  # the label of the table that its rows stand in

    @property
    def batches(self) -> int:
        """The inference batches of a sample: fewer of long completions, but at least one."""
        completions = self.completions * 80 // max(80, self.setting.length)
        return max(1, completions // self.setting.inference_batch)


def list_experiments(letter: str, quick: bool = False) -> Iterator[Experiment]:
    """Yield the experiments of a part; if it is to be quick, fewer and smaller ones."""
    part, smaller = PARTS[letter], TABLE["quick"] if quick else {}
    shared = {name: part[name] for name in ("measure", "sides") if name in part}
    for row in part["experiments"]:
        values = TABLE["models"].get(row["model"], {}) | smaller | shared | row
        sides, rates = values.pop("sides", []), values.pop("rates", [None])
        choices = {name: value for name, value in values.items() if isinstance(value, list)}
        if quick:
            rates = rates[:2]
            choices = {name: value[:2] for name, value in choices.items()}
        for combination in product(*choices.values()):
            chosen = values | dict(zip(choices, combination, strict=True))
            yield _build_experiment(**chosen, sides=tuple(sides), rates=tuple(rates))


def _build_experiment(model: str, name: str = "", **values) -> Experiment:
    """Return the experiment of a row with one value for each setting."""
    values = {"micro_batch": min(8, values.get("n_step", Setting.n_step))} | values
    names = {field.name for field in fields(Setting)} & values.keys()
    setting = Setting(**{name: values.pop(name) for name in names})
    name = name.format(**asdict(setting), N_inference=setting.inference_batch)
    name = f"{model}, {name}" if name else model
    return Experiment(name, model, setting=setting, **values)
