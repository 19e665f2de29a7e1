"""Schemas of most sections of params.yaml, with the bounds of each value, and of a run's name.

The schema of `training` is in `rapid.algorithms.training_parameters`, that of an algorithm's
section in the algorithm's module, and those of `arena` and `studies` in modules beside this one.

H is the number of optimizer steps that RAPID takes on one inference batch.
"""

from collections.abc import Sequence
from functools import partial
from operator import eq, not_
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Tag,
    model_validator,
)

from rapid.algorithms.training_parameters import LearningRate, NStep, Precision, TrainingParameters
from rapid.algorithms.variant_names import AlgorithmName, parse_variant_name
from rapid.artifacts.layout import EVALUATION, RUN
from rapid.benchmarks import BENCHMARKS
from rapid.settings import LARGEST, Settings, describe_invalid
from rapid.text import join_words

BASE = "base"  # in place of an algorithm's name: the model before training


def _check_start(name: str) -> str:
    """Return the name unchanged, if it is `BASE` or a valid name of an algorithm's variant."""
    try:
        return name if name == BASE else parse_variant_name(name).name
    except ValueError as error:
        raise ValueError(f"{error}; or write {BASE} for the model before training") from None


def _check_model_name(name: str) -> str:
    if name == "tokenizer":
        raise ValueError("models/tokenizer/ is the folder of the tokenizer; choose another name")
    return name


BenchmarkName = Literal[tuple(BENCHMARKS)]
# Names are also names of folders and files, and appear in commands without quotes.
FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Start = Annotated[str, AfterValidator(_check_start)]
ModelName = Annotated[FolderName, AfterValidator(_check_model_name)]
# Without dots, so that no experiment's folder experiments/NAME/ has the name of another one's file,
# such as tiny.yaml.
NameWithoutDots = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Source = Annotated[str, Field(pattern=r"^[^{}]+$")]  # Snakemake reads braces as wildcards
Probability = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, le=LARGEST)]
Size = Annotated[int, Field(ge=1, le=LARGEST)]


class Section(Settings):
    """Base class of the sections of params.yaml. Errors name keys relative to the section."""


def check_source(key: str, benchmark: str, source: str) -> None:
    """Raise ValueError if the source is embedded or hub, and the benchmark has no such problems."""
    available = {
        "embedded": bool(BENCHMARKS[benchmark].draw),
        "hub": bool(BENCHMARKS[benchmark].hub),
    }
    if source in available and not available[source]:
        names = [name for name, is_available in available.items() if is_available]
        choices = join_words([*names, "a file", "a folder of problems"], "or")
        reason = f"{benchmark} has no {source} problems; write {choices}"
        raise ValueError(describe_invalid(key, source, reason))


class BenchmarkParams(Section):
    """One benchmark: the number of its problems, and the sizes of its batches and completions."""

    source: Source = Field("embedded", description="embedded, hub, or a file or folder of problems")
    train: PositiveInt = Field(description="training problems")
    test: PositiveInt = Field(description="test problems")
    reserved: NonNegativeInt = Field(
        0,
        description="number of test problems of another experiment, which are in neither split",
    )
    n_step: NStep
    max_completion_length: PositiveInt = Field(description="tokens")
    pass_at: list[PositiveInt] = Field([1], min_length=1, description="the k of pass@k")
    timeout: PositiveFloat = Field(description="seconds per verdict")

    @model_validator(mode="after")
    def _check_reserved(self):
        if self.reserved and self.source != "embedded":
            reason = "must be 0 unless source is embedded"
            raise ValueError(describe_invalid("reserved", self.reserved, reason))
        return self


class EmbeddedModel(Section):
    """A tiny model that the pipeline pre-trains, with an architecture of transformers."""

    architecture: Literal["qwen2", "llama", "gemma3"] = "qwen2"
    layers: PositiveInt
    hidden: Annotated[
        int, Field(ge=64, multiple_of=64, description="width of the model; heads are 64 wide")
    ]
    benchmarks: list[BenchmarkName] = Field(
        min_length=1, description="benchmarks that it is pre-trained on"
    )
    steps: PositiveInt = Field(description="optimizer steps of pre-training per benchmark")
    error_rate: dict[BenchmarkName, Probability] = Field(
        description="share of the later demonstrations with a deliberate mistake (the first ones "
        "have none): a number, or a number for each benchmark"
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_error_rate(cls, values: Any) -> Any:
        """Replace one error rate by the same rate for each benchmark."""
        match values:
            case {"error_rate": dict()}:
                return values
            case {"error_rate": rate, "benchmarks": [*names]}:
                return {**values, "error_rate": {str(name): rate for name in names}}
        return values

    @model_validator(mode="after")
    def _check_error_rates(self):
        if set(self.error_rate) != set(self.benchmarks):
            reason = (
                "must be a number, or have a number for each of the model's benchmarks: "
                f"{', '.join(self.benchmarks)}"
            )
            raise ValueError(describe_invalid("error_rate", list(self.error_rate), reason))
        return self


class PublishedModel(Section):
    """A published model, from the hub, a folder, a GGUF file or a package."""

    source: Source = Field(
        description="name on the hub, folder, GGUF file, or pypi:NAME==VERSION, a package with a "
        "GGUF file",
    )
    revision: str = Field("main", description="branch, tag or commit on the hub")
    chat: bool = Field(False, description="use the model's own chat template")
    tensor_parallel: PositiveInt = Field(
        1, description="number of GPUs over which vLLM splits the model, if it is the teacher"
    )


def _tag_model(model: Any) -> str:
    """Return the tag of a model's class for pydantic. Only published models have a source."""
    is_published = (
        "source" in model if isinstance(model, dict) else isinstance(model, PublishedModel)
    )
    return "published" if is_published else "embedded"


AnyModel = Annotated[
    Annotated[EmbeddedModel, Tag("embedded")] | Annotated[PublishedModel, Tag("published")],
    Discriminator(_tag_model),
]


class Pretraining(Section):
    """Parameters of all models that the pipeline pre-trains."""

    vocabulary: Annotated[int, Field(ge=300, description="size of the tokenizer's vocabulary")]
    demonstrations: PositiveInt = Field(
        description="number of demonstrations generated for each benchmark"
    )
    batch: PositiveInt = Field(description="demonstrations per optimizer step")
    learning_rate: LearningRate


class Training(TrainingParameters):
    """Parameters of all RL algorithms."""

    # `exclude_if`, here and below: a parameter at its default is not written to a job's spec.
    start: Start = Field(
        BASE,
        exclude_if=partial(eq, BASE),
        description="model that RL starts from: base, or an algorithm that trains it, such as sft",
    )
    start_seed: Seed | None = Field(
        None,
        exclude_if=partial(eq, None),
        description="seed of the run that RL starts from; by default each run's own seed",
    )

    @model_validator(mode="after")
    def _check_start_seed(self):
        if self.start == BASE and self.start_seed is not None:
            reason = f"must be unset if start is {BASE}, which has no seed"
            raise ValueError(describe_invalid("start_seed", self.start_seed, reason))
        return self


class DvcExperiment(Section):
    """The runs that `dvc exp show` compares: RAPID's with H = `rapid.H` on this benchmark.

    The model and the seeds are those of the main table.
    """

    benchmark: BenchmarkName


class Logging(Section):
    """Services that training runs report to while they run."""

    report_to: Literal["none", "tensorboard", "trackio", "wandb"] = "none"


class ReportParams(Section):
    """The layout of the paper with the tables and figures. A length overrides the style's."""

    style: Literal["plain", "iclr", "neurips", "icml", "acl", "ieee"] = "plain"
    text_width: PositiveFloat | None = Field(None, description="inches")
    column_width: PositiveFloat | None = Field(None, description="inches")
    text_height: PositiveFloat | None = Field(None, description="inches")
    type_size: PositiveFloat | None = Field(None, description="points")
    caption: Literal["above", "below"] | None = Field(
        None, description="place of a table's caption"
    )
    notes: Literal["below", "caption", "end", "none"] = Field(
        "below", description="place of the notes of tables; end: once, after all tables of a file"
    )


class EvaluationParams(Section):
    """Settings of the evaluation of a model on the test problems."""

    samples: PositiveInt = Field(description="n: completions per test problem")
    snapshot_samples: PositiveInt | None = Field(
        None,
        exclude_if=partial(eq, None),
        description="completions per test problem of a snapshot (a model saved during training); "
        "by default `samples`",
    )
    temperature: PositiveFloat
    top_p: Annotated[float, Field(gt=0, le=1)]
    precision: Precision = "float32"
    diversity: bool = Field(
        False,
        exclude_if=not_,
        description="also measure the entropy of the model, and how many completions differ",
    )
    shown: NonNegativeInt = Field(
        0,
        exclude_if=partial(eq, 0),
        description="number of test problems whose first completion is kept for the report",
    )

    @property
    def effective_snapshot_samples(self) -> int:
        """Completions per test problem of a snapshot: `snapshot_samples`, or else `samples`."""
        return self.snapshot_samples or self.samples

    def explain_too_few_samples(self, pass_at: Sequence[int]) -> str:
        """Return why pass@k needs more completions, or "" if there are enough.

        Of snapshots, only pass@k for the first k is needed.
        """
        for key, count, k in (
            ("samples", self.samples, max(pass_at)),
            ("snapshot_samples", self.effective_snapshot_samples, pass_at[0]),
        ):
            if k > count:
                return f"must be at most {count}, which is evaluation.{key}"
        return ""


class Compute(Section):
    """Hardware and processes of jobs. They change results only by rounding."""

    device: Literal["cpu", "gpu"] = "cpu"
    threads: PositiveInt = Field(1, description="CPU threads per process, each on its own core")
    processes: PositiveInt = Field(
        1, description="processes of a training job, with ZeRO-2; on GPUs, one GPU for each"
    )
    nodes: PositiveInt = Field(
        1, description="number of servers among which the processes are divided; only with SLURM"
    )
    sampler: Literal["transformers", "vllm"] = "transformers"

    @model_validator(mode="after")
    def _check_processes_per_node(self):
        if self.processes % self.nodes:
            reason = f"must be a multiple of {self.nodes}, which is compute.nodes"
            raise ValueError(describe_invalid("processes", self.processes, reason))
        return self

    def uses_vllm_server(self, algorithm: AlgorithmName) -> bool:
        """Return whether an algorithm samples from a vLLM server with a GPU of its own."""
        needs_server = parse_variant_name(algorithm).algorithm.uses_vllm_server
        return needs_server and self.sampler == "vllm" and self.device == "gpu"


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
    """The runs that are in the paper's tables."""

    main: MainTable
    families: FamilyTable
    staleness: StalenessTable


class Run(Section):
    """The name of a run, which determines its folders (`rapid.artifacts.layout`)."""

    benchmark: BenchmarkName
    model: ModelName
    algorithm: str
    seed: Seed

    @property
    def folder(self) -> str:
        """The folder of the training job, without an experiment's root (experiments/NAME/)."""
        return RUN.format(**self.model_dump())

    @property
    def evaluation(self) -> str:
        """The folder of the evaluation job, without an experiment's root."""
        return EVALUATION.format(**self.model_dump())
