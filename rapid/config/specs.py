"""The jobs that the tables need, and for each the part of the parameters that decides its result.

The workflow hands a job its spec and nothing else, so that a change of one number reruns the jobs
that it reaches and no others; the job writes the spec into its manifest. A spec also has a digest
of the code that decides the result (`rapid.artifacts.code`), with the same effect.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import InstanceOf, SerializeAsAny, ValidationInfo, field_validator, model_validator

from rapid.algorithms import RAPID
from rapid.algorithms.base import Parameters
from rapid.algorithms.names import imitates, parse
from rapid.algorithms.training import Precision
from rapid.artifacts.code import Spec, files_behind
from rapid.artifacts.manifests import MANIFEST
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import PROMPT
from rapid.config.arena import Entry
from rapid.config.params import Params
from rapid.config.sections import (
    BASE,
    BenchmarkName,
    Compute,
    EmbeddedModel,
    EvaluationParams,
    ModelName,
    Pretraining,
    PublishedModel,
    Run,
    Seed,
    Training,
    check_source,
)
from rapid.grading.policy import STRICT, Grading

# Of a folder with a model: nothing that runs when it is read.
OF_MODELS = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")


class PrepareSpec(Spec):
    benchmark: BenchmarkName
    source: str = "embedded"
    data_seed: Seed
    train: int
    test: int
    reserved: int = 0
    demonstrations: int

    @model_validator(mode="after")
    def _problems_exist(self):
        check_source("source", self.benchmark, self.source)
        return self

    def files(self) -> dict[str, str]:
        """Return the files of code behind it; nothing is graded, and lessons have a template."""
        without = ["rapid/grading/"]
        if BENCHMARKS[self.benchmark].lesson_template != PROMPT:
            without.append(f"rapid/benchmarks/{self.benchmark}/{PROMPT}")
        modules = ("rapid.stages.prepare", f"rapid.benchmarks.{self.benchmark}")
        return files_behind(*modules, without=tuple(without))


class TokenizerSpec(Spec):
    benchmarks: list[BenchmarkName]
    vocabulary: int

    def files(self) -> dict[str, str]:
        return files_behind("rapid.stages.pretrain")


class PretrainSpec(Spec):
    model: ModelName
    data_seed: Seed
    threads: int
    params: EmbeddedModel
    pretraining: Pretraining

    def files(self) -> dict[str, str]:
        return files_behind("rapid.stages.pretrain")


class FetchSpec(Spec):
    model: ModelName
    params: PublishedModel

    def files(self) -> dict[str, str]:
        return files_behind("rapid.stages.fetch")


class DistillSpec(Spec):
    benchmark: BenchmarkName
    teacher: ModelName
    data_seed: Seed
    compute: Compute
    chat: bool
    tensor_parallel: int
    precision: Precision
    max_completion_length: int
    timeout: float
    grading: Grading = STRICT
    temperature: float
    top_p: float
    samples: int

    def files(self) -> dict[str, str]:
        return files_behind("rapid.stages.distill", f"rapid.benchmarks.{self.benchmark}")


class DemonstrateSpec(Spec):
    benchmark: BenchmarkName
    data_seed: Seed
    reserved: int
    demonstrations: int
    error_rate: float

    def files(self) -> dict[str, str]:
        return files_behind("rapid.stages.demonstrate", f"rapid.benchmarks.{self.benchmark}")


class TrainSpec(Spec):
    run: Run
    compute: Compute
    chat: bool
    max_completion_length: int
    timeout: float
    grading: Grading = STRICT
    n_step: int
    H: int
    training: Training | None
    objective: SerializeAsAny[Parameters] | None
    sampling_batch: int | None  # completions sampled at a time; None: the whole inference batch
    snapshots: int  # models kept on the way
    problems: int | None = None  # of the training problems the first so many; None: all

    @field_validator("objective", mode="before")
    @classmethod
    def _of_its_algorithm(cls, value: Any, info: ValidationInfo) -> Any:
        """Read the parameters as those of the run's algorithm."""
        if not isinstance(value, dict) or "run" not in info.data:
            return value
        algorithm = parse(info.data["run"].algorithm).algorithm
        return (algorithm.parameters or Parameters).model_validate(value)

    @property
    def passes(self) -> Any:  # the section that says what a pass is
        return self.training or self.objective

    def files(self) -> dict[str, str]:
        algorithm = type(parse(self.run.algorithm).algorithm).__module__
        roots = ["rapid.stages.train", algorithm, f"rapid.benchmarks.{self.run.benchmark}"]
        if self.compute.processes > 1:
            roots += ["rapid.processes.launch", "workflow/accelerate/zero2.yaml"]
        if served(self):
            roots += ["rapid.vllm_server"]
        return files_behind(*roots)


class EvaluateSpec(Spec):
    run: Run
    compute: Compute
    chat: bool
    max_completion_length: int
    timeout: float
    grading: Grading = STRICT
    pass_at: list[int]
    evaluation: EvaluationParams
    snapshots: int

    def files(self) -> dict[str, str]:
        return files_behind("rapid.stages.evaluate", f"rapid.benchmarks.{self.run.benchmark}")


class ReportSpec(Spec):
    params: SerializeAsAny[InstanceOf[Params]]

    def files(self) -> dict[str, str]:
        """Return the package's files, and those of rapid that they import: no further, since what
        decides a run or an evaluation reaches the report through it."""
        algorithms = {type(parse(run.algorithm).algorithm).__module__ for run in runs(self.params)}
        benchmarks = (f"rapid.benchmarks.{name}" for name in self.params.benchmarks)
        roots = ("reports", *sorted(algorithms), *benchmarks)
        return files_behind(*roots, through=("reports/",), shown=True)


def runs(params: Params) -> list[Run]:
    """Every training run that the tables need, and of the default those that DVC compares."""
    main, families = params.tables.main, params.tables.families
    names = [*main.algorithms, *map(RAPID.at, params.tables.staleness.H)]
    entries = [(benchmark, names, main.seeds) for benchmark in params.benchmarks]
    found = _runs(params, main.model, entries)
    for model in families.models:
        entries = [(families.benchmark, families.algorithms, families.seeds)]
        found += _runs(params, model, entries)
    return list(dict.fromkeys([*found, *([] if params.name else compared(params))]))


def compared(params: Params) -> list[Run]:
    """The runs whose figures `dvc exp show` compares, a seed each."""
    main, name = params.tables.main, params.compared
    entries = [(params.experiment.benchmark, [name], main.seeds)]
    return [run for run in _runs(params, main.model, entries) if run.algorithm == name]


def studied(params: Params) -> list[Run]:
    """Every training run that the studies need, without repetition."""
    studies = params.studies.compared.values() if params.studies else ()
    entries = [(study.benchmark, study.algorithms, params.studies.seeds) for study in studies]
    return _runs(params, params.tables.main.model, entries)


def in_arena(params: Params) -> list[Run]:
    """Every training run of the arena."""
    entries = params.arena.entries() if params.arena else ()
    return _runs(params, params.tables.main.model, entries)


def _runs(params: Params, model: ModelName, entries: Iterable[Entry]) -> list[Run]:
    """Return a model's runs, each once, and after the one that it starts from."""
    found = [
        Run(benchmark=benchmark, model=model, algorithm=each, seed=seed)
        for benchmark, algorithms, seeds in entries
        for name in algorithms
        for seed in seeds
        for each in (params.start(name), name)
        if each != BASE
    ]
    return list(dict.fromkeys(found))


def evaluated(trained: list[Run]) -> list[Run]:
    """The evaluations of runs: of each, after those of their models before training."""
    bases = [run.model_copy(update={"algorithm": BASE}) for run in trained]
    return list(dict.fromkeys([*bases, *trained]))


def prepare_spec(params: Params, benchmark: str) -> PrepareSpec:
    sizes = params.benchmarks[benchmark]
    return PrepareSpec(
        benchmark=benchmark,
        data_seed=params.data_seed,
        demonstrations=_lessons(params, benchmark),
        **sizes.model_dump(include={"source", "train", "test", "reserved"}),
    ).with_code()


def _lessons(params: Params, benchmark: str) -> int:
    """Return how many made problems of a benchmark models that are needed are trained on."""
    made = [params.models[name] for name in needed(params) if is_made(params, name)]
    is_learnt = any(benchmark in model.benchmarks for model in made)
    return params.pretraining.demonstrations if is_learnt else 0


def needed(params: Params) -> list[ModelName]:
    """The models that the tables, the studies and the arena need."""
    trained = [*runs(params), *studied(params), *in_arena(params)]
    taught = [] if params.imitation.demonstrations else trained
    teachers = [params.teacher for run in taught if imitates(run.algorithm)]
    return list(dict.fromkeys([*(run.model for run in trained), *teachers]))


def is_made(params: Params, model: ModelName) -> bool:
    """Return whether the pipeline makes a model; the others are published."""
    return isinstance(params.models[model], EmbeddedModel)


def source_files(spec: Spec) -> list[str]:
    """Return the user's files that a job reads."""
    if isinstance(spec, PrepareSpec) and spec.source not in ("embedded", "hub"):
        return _within(Path(spec.source), "**/*") or [spec.source]
    if isinstance(spec, FetchSpec):
        path = Path(spec.params.source)
        return _within(path, *OF_MODELS) or [str(path)] * path.is_file()
    return []


def _within(folder: Path, *patterns: str) -> list[str]:
    """Return the files in a folder that its digest is of, but for names with Snakemake's braces."""
    found = {file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}
    known = (file for file in found if file.name != MANIFEST and not {*"{}"} & {*str(file)})
    return sorted(str(file) for file in known if "/." not in f"/{file.relative_to(folder)}")


def tokenizer_spec(params: Params) -> TokenizerSpec:
    return TokenizerSpec(
        benchmarks=list(params.benchmarks), vocabulary=params.pretraining.vocabulary
    ).with_code()


def model_spec(params: Params, model: str) -> PretrainSpec | FetchSpec:
    if not is_made(params, model):
        known = params.models[model].model_dump(include={"source", "revision"})
        return FetchSpec(model=model, params=known).with_code()
    return PretrainSpec(
        model=model,
        data_seed=params.data_seed,
        threads=params.compute.threads,
        params=params.models[model],
        pretraining=params.pretraining,
    ).with_code()


def distill_spec(params: Params, benchmark: str) -> DistillSpec | DemonstrateSpec:
    imitation = params.imitation
    if imitation.demonstrations:
        return DemonstrateSpec(
            benchmark=benchmark,
            data_seed=params.data_seed,
            reserved=params.benchmarks[benchmark].reserved,
            demonstrations=imitation.demonstrations,
            error_rate=imitation.error_rate,
        ).with_code()
    return DistillSpec(
        benchmark=benchmark,
        teacher=params.teacher,
        data_seed=params.data_seed,
        compute=_single(params.compute),
        chat=_chat(params, params.teacher),
        tensor_parallel=getattr(params.models[params.teacher], "tensor_parallel", 1),
        precision=imitation.teacher_precision,
        **imitation.model_dump(include={"temperature", "top_p", "samples"}),
        **_limits(params, benchmark),
    ).with_code()


def served(spec: Spec) -> bool:
    """Return whether a job samples from a vLLM server."""
    return isinstance(spec, TrainSpec) and spec.compute.serves(spec.run.algorithm)


def train_spec(params: Params, run: Run) -> TrainSpec:
    name = parse(run.algorithm)
    algorithm, changes = name.algorithm, name.changes
    objective = algorithm.objective(params)
    if objective:
        objective = objective.model_copy(update=changes.within(type(objective).model_fields))
    updates = changes.within(Training.model_fields) | {"start": params.start(run.algorithm)}
    training = params.training.model_copy(update=updates)
    sizes = params.benchmarks[run.benchmark]
    n_step, limits = changes.n_step or sizes.n_step, _limits(params, run.benchmark)
    if algorithm.imitates:  # it samples and grades nothing
        n_step, limits = 0, limits | {"timeout": 0.0, "grading": STRICT}
    spec = TrainSpec(
        run=run,
        compute=params.compute,
        chat=_chat(params, run.model),
        n_step=n_step,
        H=name.H,
        training=None if algorithm.imitates else training,
        objective=objective,
        sampling_batch=algorithm.sampling_batch(params),
        snapshots=changes.snapshots or 0,
        problems=changes.problems,
        **limits,
    ).with_code()
    if not served(spec):
        return spec
    # One of the GPUs samples; of the others as many train as divide N_step evenly.
    trainers = max(n for n in range(1, max(2, params.compute.processes)) if n_step % n == 0)
    compute = params.compute.model_copy(update={"processes": trainers})
    return spec.model_copy(update={"compute": compute})


def evaluate_spec(params: Params, run: Run) -> EvaluateSpec:
    sizes = params.benchmarks[run.benchmark]
    return EvaluateSpec(
        run=run,
        compute=_single(params.compute),
        chat=_chat(params, run.model),
        pass_at=sizes.pass_at,
        evaluation=params.evaluation,
        snapshots=0 if run.algorithm == BASE else parse(run.algorithm).changes.snapshots or 0,
        **_limits(params, run.benchmark),
    ).with_code()


def report_spec(params: Params) -> ReportSpec:
    """Return the spec of the jobs that report; what a change of reruns nothing is as usual."""
    fields = type(params).model_fields.items()
    usual = {name: field.get_default() for name, field in fields if field.exclude}
    return ReportSpec(params=params.model_copy(update=usual)).with_code()


def _chat(params: Params, model: ModelName) -> bool:
    """Return whether a model is prompted as a chat model; none that the pipeline makes is."""
    return getattr(params.models[model], "chat", False)


def _single(compute: Compute) -> Compute:
    """Return the compute of a job that only samples: one process."""
    return compute.model_copy(update={"processes": 1, "nodes": 1})


def _limits(params: Params, benchmark: BenchmarkName) -> dict:
    limits = params.benchmarks[benchmark].model_dump(include={"max_completion_length", "timeout"})
    heeded = params.grading.model_dump(include=BENCHMARKS[benchmark].walls)
    return {**limits, "grading": Grading(**heeded)}
