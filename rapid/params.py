"""params.yaml as validated objects: the one door through which everything reads it.

`load` takes the merged YAML (Snakemake's `config`, or files read by `read`) and returns a `Params`.
What a single job depends on is cut out of it in `rapid.specs`.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Tag,
    ValidationError,
    model_validator,
)

from rapid.algorithms import (
    OF_RAPID,
    RAPID,
    AlgorithmName,
    Baseline,
    Clip,
    Eta,
    GroupSize,
)
from rapid.fits import check_batches, message
from rapid.records import BadInput

BenchmarkName = Literal["mbpp_plus", "math", "minif2f"]
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Probability = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Precision = Annotated[
    Literal["float32", "bfloat16"], Field(description="of weights in computation")
]


class BadParams(BadInput):
    """A value in params.yaml that cannot be used. The message names key, value and what is allowed."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BenchmarkParams(Section):
    """One benchmark: how many problems, and the sizes that belong to it."""

    source: str = Field("embedded", description="embedded, hub, or a file or folder of problems")
    train: PositiveInt = Field(description="training problems")
    test: PositiveInt = Field(description="test problems")
    n_step: PositiveInt = Field(description="N_step: completions an optimizer step")
    max_completion_length: PositiveInt = Field(description="tokens")
    pass_at: list[PositiveInt] = Field([1], min_length=1, description="the k of pass@k")
    timeout: PositiveFloat = Field(description="seconds a verdict may take")


class ModelParams(Section):
    """A model that the pipeline makes: an architecture of transformers at a tiny size."""

    architecture: Literal["qwen2", "llama", "gemma3"] = "qwen2"
    layers: PositiveInt
    hidden: Annotated[int, Field(ge=64, multiple_of=64, description="width; heads of 64")]
    benchmarks: list[BenchmarkName] = Field(min_length=1, description="what it is trained on")
    steps: PositiveInt = Field(description="optimizer steps of pre-training, a benchmark")
    error_rate: dict[BenchmarkName, Probability] = Field(
        description="share of demonstrations with a deliberate mistake; one number for all, or one each"
    )

    @model_validator(mode="before")
    @classmethod
    def _one_rate_for_all(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("error_rate"), int | float):
            rates = dict.fromkeys(values.get("benchmarks") or [], values["error_rate"])
            return {**values, "error_rate": rates}
        return values

    @model_validator(mode="after")
    def _a_rate_each(self):
        if set(self.error_rate) != set(self.benchmarks):
            allowed = f"a rate for each of benchmarks: {', '.join(self.benchmarks)}"
            raise ValueError(message("error_rate", list(self.error_rate), allowed))
        return self


class PublishedModel(Section):
    """A model from elsewhere."""

    source: str = Field(
        min_length=1,
        description="a hub's name, a folder, a GGUF file, or pypi:NAME==VERSION of a package with one",
    )
    revision: str = Field("main", description="of a hub's name: branch, tag or commit")
    chat: bool = Field(False, description="prompt it as a chat model, by its own template")
    tensor_parallel: PositiveInt = Field(1, description="GPUs that share it where it only samples")


def _which(model: Any) -> str:
    given = "source" in model if isinstance(model, dict) else isinstance(model, PublishedModel)
    return "published" if given else "made"


AnyModel = Annotated[
    Annotated[ModelParams, Tag("made")] | Annotated[PublishedModel, Tag("published")],
    Discriminator(_which),
]


class Pretraining(Section):
    """What all models made in the pipeline share."""

    vocabulary: Annotated[int, Field(ge=300, description="tokens of the tokenizer")]
    demonstrations: PositiveInt = Field(description="made for each benchmark")
    batch: PositiveInt = Field(description="demonstrations an optimizer step")
    learning_rate: PositiveFloat


class Training(Section):
    """What all RL algorithms share."""

    learning_rate: PositiveFloat
    epochs: PositiveInt = Field(description="passes over the training problems")
    group_size: GroupSize = Field(description="N_group: completions a prompt")
    micro_batch: PositiveInt = Field(description="completions a forward and backward pass")
    temperature: PositiveFloat = Field(description="of sampling")
    precision: Precision = "float32"


class Grpo(Section):
    beta: NonNegativeFloat = Field(description="KL coefficient")
    epsilon: Annotated[float, Field(gt=0, lt=1, description="clip of the token ratio")]


class NaiveGrpo(Section):
    """GRPO that samples as few completions at a time as it backpropagates (paper, Figure 1)."""

    sampling_batch: PositiveInt = Field(description="completions sampled at a time")


class Dapo(Section):
    epsilon_low: Annotated[float, Field(gt=0, lt=1)]
    epsilon_high: Annotated[float, Field(gt=0, description="clip-higher: above epsilon_low")]
    rounds: PositiveInt = Field(
        description="sampling rounds before a batch without signal is taken"
    )
    overlong_buffer: Annotated[float, Field(gt=0, lt=1, description="share of the length limit")]


class Rapid(Section):
    eta: Eta = Field(description="importance weights are clipped to at most eta")
    clip: Clip = Field(
        description="where: in the advantage (Algorithm 1), in the gradient's weight too, nowhere"
    )
    baseline: Baseline = Field(
        "group", description="of the advantage: the group's mean, the others' of it, none"
    )
    weighted: bool = Field(True, description="by importance; false takes every weight for 1")


class RapidParams(Rapid):
    """RAPID's objective, and the run of it that `dvc exp show` compares."""

    H: PositiveInt = Field(description="optimizer steps an inference batch, of the compared run")

    @property
    def objective(self) -> Rapid:
        """What decides a run's result; its H is in its name."""
        return Rapid(**{name: getattr(self, name) for name in OF_RAPID})


class Experiment(Section):
    """What `dvc exp show` compares: RAPID with rapid.H, with the model and seeds of the main table."""

    benchmark: BenchmarkName


class Sft(Section):
    learning_rate: PositiveFloat
    epochs: PositiveInt
    batch: PositiveInt = Field(description="demonstrations an optimizer step")
    micro_batch: PositiveInt = Field(description="demonstrations a forward and backward pass")
    temperature: PositiveFloat = Field(description="the teacher's")
    top_p: Annotated[float, Field(gt=0, le=1, description="the teacher's")]
    samples: PositiveInt = Field(description="teacher completions a prompt; the correct are kept")
    precision: Precision = "float32"
    teacher_precision: Precision = "float32"


class EvaluationParams(Section):
    samples: PositiveInt = Field(description="n: completions a test problem")
    temperature: PositiveFloat
    top_p: Annotated[float, Field(gt=0, le=1)]
    precision: Precision = "float32"


class Compute(Section):
    """What jobs run on: nothing here is meant to change a result by more than rounding."""

    device: Literal["cpu", "gpu"] = "cpu"
    threads: PositiveInt = Field(
        1, description="CPU threads of a process, which has them to itself"
    )
    processes: PositiveInt = Field(
        1, description="of a training job, by ZeRO-2; with device gpu each has a GPU"
    )
    nodes: PositiveInt = Field(1, description="servers that these processes share; SLURM only")
    sampler: Literal["transformers", "vllm"] = "transformers"

    @model_validator(mode="after")
    def _as_many_on_each_node(self):
        if self.processes % self.nodes:
            allowed = f"a multiple of compute.nodes, {self.nodes}"
            raise ValueError(message("compute.processes", self.processes, allowed))
        return self

    def serves(self, kind: str) -> bool:
        """Whether an algorithm of this kind samples from a vLLM server with a GPU of its own.

        The paper's naive GRPO does, where there are GPUs.
        """
        return kind == "naive-grpo" and self.sampler == "vllm" and self.device == "gpu"


class MainTable(Section):
    """Table 1: one model, every benchmark, several algorithms."""

    model: ModelName
    algorithms: list[AlgorithmName] = Field(min_length=1)
    seeds: list[Seed] = Field(min_length=1)


class FamilyTable(Section):
    """Table 2: several models on one benchmark."""

    benchmark: BenchmarkName
    models: list[ModelName]
    algorithms: list[AlgorithmName]
    seeds: list[Seed] = Field(min_length=1)


class StalenessTable(Section):
    """Tables 3 and 4: RAPID at several H, with the model and seeds of the main table."""

    H: list[PositiveInt] = Field(min_length=1)


class Tables(Section):
    main: MainTable
    families: FamilyTable
    staleness: StalenessTable


class Studies(Section):
    """Further targets: the main table's model, one thing changed at a time."""

    benchmark: BenchmarkName
    seeds: list[Seed] = Field(min_length=1)
    compared: dict[str, Annotated[list[AlgorithmName], Field(min_length=2)]] = Field(
        description="algorithms and variants of each study; the first is what others are held against"
    )


class Params(Section):
    data_seed: Seed = Field(description="makes problems, splits and base models")
    compute: Compute
    benchmarks: dict[BenchmarkName, BenchmarkParams] = Field(min_length=1)
    models: dict[ModelName, AnyModel] = Field(min_length=1)
    teacher: ModelName
    pretraining: Pretraining
    training: Training
    grpo: Grpo
    naive_grpo: NaiveGrpo
    dapo: Dapo
    rapid: RapidParams
    sft: Sft
    evaluation: EvaluationParams
    tables: Tables
    experiment: Experiment
    studies: Studies | None = None

    @model_validator(mode="before")
    @classmethod
    def _left_out(cls, values: Any) -> Any:
        """An overlay leaves a benchmark or a model of the default out by giving it no value."""
        kept = {
            key: {name: value for name, value in values[key].items() if value is not None}
            for key in ("benchmarks", "models")
            if isinstance(values, dict) and isinstance(values.get(key), dict)
        }
        return {**values, **kept} if kept else values

    @model_validator(mode="after")
    def _names_exist(self):
        tables = self.tables
        named = {
            "teacher": [self.teacher],
            "tables.main.model": [tables.main.model],
            "tables.families.models": tables.families.models,
        }
        for key, names in named.items():
            for name in names:
                if name not in self.models:
                    raise ValueError(
                        message(key, name, f"a model of models: {', '.join(self.models)}")
                    )
        for key, name in {
            "tables.families.benchmark": tables.families.benchmark,
            "experiment.benchmark": self.experiment.benchmark,
            "studies.benchmark": self.studies.benchmark if self.studies else None,
        }.items():
            if name is None:
                continue
            if name not in self.benchmarks:
                allowed = f"a benchmark of benchmarks: {', '.join(self.benchmarks)}"
                raise ValueError(message(key, name, allowed))
        return self

    @model_validator(mode="after")
    def _batches_fit(self):
        check_batches(self)
        return self

    def algorithms(self, benchmark: BenchmarkName) -> list[AlgorithmName]:
        """All that are run on a benchmark, in the order of the tables."""
        tables = self.tables
        ratios = [*tables.staleness.H, *([self.rapid.H] if self._is_compared(benchmark) else [])]
        found = [*tables.main.algorithms, *(f"{RAPID}-H{h}" for h in ratios)]
        if benchmark == tables.families.benchmark:
            found += tables.families.algorithms
        if self.studies and benchmark == self.studies.benchmark:
            found += [name for names in self.studies.compared.values() for name in names]
        return list(dict.fromkeys(found))

    def _is_compared(self, benchmark: BenchmarkName) -> bool:
        return benchmark == self.experiment.benchmark


def read(*paths: Path | str) -> dict:
    """Read YAML files and merge them, later over earlier, as `snakemake --configfile A B` does."""
    merged: dict = {}
    for path in paths:
        with open(path, encoding="utf-8") as stream:
            _overlay(merged, yaml.safe_load(stream) or {})
    return merged


def _overlay(base: dict, over: dict) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _overlay(base[key], value)
        else:
            base[key] = value


def load(values: dict) -> Params:
    """Validate merged YAML.

    Raises:
        BadParams: with one line for each wrong value: its key, the value, what is allowed.
    """
    try:
        return Params.model_validate(values)
    except ValidationError as error:
        raise BadParams("\n".join(_explain(item) for item in error.errors())) from None


def _explain(item: dict) -> str:
    parts = [part for part in item["loc"] if part not in ("[key]", "made", "published")]
    key = ".".join(map(str, parts))
    said = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error":
        return f"params: {said}"
    if item["type"] == "missing":
        return f"params: {key}: is missing"
    if item["type"] == "extra_forbidden":
        return (
            f"params: {key}: {item['input']!r} is not allowed; allowed: no such key is known here"
        )
    allowed = said.removeprefix("Input should be ")
    return f"params: {message(key, item['input'], allowed)}"
