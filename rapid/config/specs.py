"""Lists the runs that reports need, and selects the parameters that decide each job's result.

These parameters, with a digest of the job's code, are its spec. Each stage has a class, such as
`TrainSpec`, and a function that builds it, such as `build_train_spec`. A job receives only its
spec, and writes it into its manifest. It runs again if the spec has changed.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import InstanceOf, SerializeAsAny, ValidationInfo, field_validator, model_validator

from rapid.algorithms import RAPID
from rapid.algorithms.base import Algorithm, Parameters
from rapid.algorithms.training_parameters import Precision
from rapid.algorithms.variant_names import is_supervised, parse_variant_name
from rapid.artifacts.code import Spec, hash_dependencies
from rapid.artifacts.manifests import list_hashed_files
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import PROMPT
from rapid.config.arena import Entry
from rapid.config.params import Params
from rapid.config.params_schema import (
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
from rapid.grading.permissions import NO_PERMISSIONS, GradingPermissions
from rapid.hub import MODEL_FILES


class PrepareSpec(Spec):
    benchmark: BenchmarkName
    source: str = "embedded"
    data_seed: Seed
    train: int
    test: int
    reserved: int = 0  # another experiment's test problems, in neither split
    demonstrations: int  # problems that are generated for pre-training

    @model_validator(mode="after")
    def _check_source(self):
        check_source("source", self.benchmark, self.source)
        return self

    def hash_code_files(self) -> dict[str, str]:
        """Hash the code without graders, and without the prompt if pre-training has another one."""
        excluded = ["rapid/grading/"]
        if BENCHMARKS[self.benchmark].pretrain_template != PROMPT:
            excluded.append(f"rapid/benchmarks/{self.benchmark}/{PROMPT}")
        modules = ("rapid.stages.prepare", f"rapid.benchmarks.{self.benchmark}")
        return hash_dependencies(*modules, excluded=tuple(excluded))


class TokenizerSpec(Spec):
    benchmarks: list[BenchmarkName]
    vocabulary: int

    def hash_code_files(self) -> dict[str, str]:
        return hash_dependencies("rapid.stages.pretrain")


class PretrainSpec(Spec):
    model: ModelName
    data_seed: Seed
    threads: int
    params: EmbeddedModel
    pretraining: Pretraining

    def hash_code_files(self) -> dict[str, str]:
        return hash_dependencies("rapid.stages.pretrain")


class FetchSpec(Spec):
    model: ModelName
    params: PublishedModel

    def hash_code_files(self) -> dict[str, str]:
        return hash_dependencies("rapid.stages.fetch")


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
    grading: GradingPermissions = NO_PERMISSIONS
    temperature: float
    top_p: float
    samples: int

    def hash_code_files(self) -> dict[str, str]:
        return hash_dependencies("rapid.stages.distill", f"rapid.benchmarks.{self.benchmark}")


class DemonstrateSpec(Spec):
    benchmark: BenchmarkName
    data_seed: Seed
    reserved: int
    demonstrations: int
    error_rate: float

    def hash_code_files(self) -> dict[str, str]:
        return hash_dependencies("rapid.stages.demonstrate", f"rapid.benchmarks.{self.benchmark}")


class TrainSpec(Spec):
    run: Run
    compute: Compute
    chat: bool
    max_completion_length: int
    timeout: float
    grading: GradingPermissions = NO_PERMISSIONS
    n_step: int  # completions per optimizer step
    H: int  # optimizer steps per inference batch
    training: Training | None  # None for SFT
    objective: SerializeAsAny[Parameters] | None  # parameters of the loss; None if it has none
    sampling_batch: int | None  # completions sampled at a time; None: the whole inference batch
    snapshots: int  # number of models saved during training
    problems: int | None = None  # train on the first N problems; None: on all

    @field_validator("objective", mode="before")
    @classmethod
    def _parse_objective(cls, value: Any, info: ValidationInfo) -> Any:
        """Parse the parameters as those of the run's algorithm."""
        if not isinstance(value, dict) or "run" not in info.data:
            return value
        algorithm = parse_variant_name(info.data["run"].algorithm).algorithm
        return (algorithm.parameters or Parameters).model_validate(value)

    @property
    def algorithm(self) -> Algorithm:
        return parse_variant_name(self.run.algorithm).algorithm

    @property
    def pass_settings(self) -> Any:
        """The section with the settings of forward and backward passes: `micro_batch`, ..."""
        return self.training or self.objective

    def hash_code_files(self) -> dict[str, str]:
        roots = [type(self.algorithm).__module__, f"rapid.benchmarks.{self.run.benchmark}"]
        if self.compute.processes > 1:
            roots += ["rapid.processes.launch", "workflow/accelerate/zero2.yaml"]
        if uses_vllm_server(self):
            roots += ["rapid.vllm_server"]
        return hash_dependencies("rapid.stages.train", *roots)


class EvaluateSpec(Spec):
    run: Run
    compute: Compute
    chat: bool
    max_completion_length: int
    timeout: float
    grading: GradingPermissions = NO_PERMISSIONS
    pass_at: list[int]
    evaluation: EvaluationParams
    snapshots: int

    def hash_code_files(self) -> dict[str, str]:
        return hash_dependencies("rapid.stages.evaluate", f"rapid.benchmarks.{self.run.benchmark}")


class ReportSpec(Spec):
    params: SerializeAsAny[InstanceOf[Params]]

    def hash_code_files(self) -> dict[str, str]:
        """Hash `reports` and its direct imports; the manifests of runs cover the code of runs."""
        names = {run.algorithm for run in list_table_runs(self.params)}
        algorithms = {type(parse_variant_name(name).algorithm).__module__ for name in names}
        benchmarks = (f"rapid.benchmarks.{name}" for name in self.params.benchmarks)
        roots = ("reports", *sorted(algorithms), *benchmarks)
        return hash_dependencies(*roots, follow=("reports/",), for_reports=True)


def list_table_runs(params: Params) -> list[Run]:
    """List the tables' training runs, and `list_dvc_runs` if the experiment has no name."""
    main, families = params.tables.main, params.tables.families
    names = [*main.algorithms, *map(RAPID.format_name, params.tables.staleness.H)]
    entries = [(benchmark, names, main.seeds) for benchmark in params.benchmarks]
    model_runs = _build_runs(params, main.model, entries)
    for model in families.models:
        entries = [(families.benchmark, families.algorithms, families.seeds)]
        model_runs += _build_runs(params, model, entries)
    return list(dict.fromkeys([*model_runs, *([] if params.name else list_dvc_runs(params))]))


def list_dvc_runs(params: Params) -> list[Run]:
    """List the runs that `dvc exp show` compares, one a seed, without the runs they start from."""
    main, name = params.tables.main, params.dvc_algorithm
    entries = [(params.experiment.benchmark, [name], main.seeds)]
    return [run for run in _build_runs(params, main.model, entries) if run.algorithm == name]


def list_study_runs(params: Params) -> list[Run]:
    """List the training runs of the studies, each once."""
    runs: list[Run] = []
    for study in params.studies.compared.values() if params.studies else ():
        entry = study.benchmark, study.algorithms, params.studies.seeds
        runs += _build_runs(params, study.model or params.tables.main.model, [entry])
    return list(dict.fromkeys(runs))


def list_arena_runs(params: Params) -> list[Run]:
    """List the training runs of the arena."""
    entries = params.arena.list_entries() if params.arena else ()
    return _build_runs(params, params.tables.main.model, entries)


def _build_runs(params: Params, model: ModelName, entries: Iterable[Entry]) -> list[Run]:
    """List a model's runs, each once, after the run whose model it starts from."""
    requested_runs = [
        Run(benchmark=benchmark, model=model, algorithm=name, seed=seed)
        for benchmark, algorithms, seeds in entries
        for name in algorithms
        for seed in seeds
    ]
    ordered_runs = [
        run for requested in requested_runs for run in (params.get_start_run(requested), requested)
    ]
    return [run for run in dict.fromkeys(ordered_runs) if run.algorithm != BASE]


def add_base_runs(params: Params, trained: list[Run]) -> list[Run]:
    """Return the models before training (runs of `BASE`) that runs start from, then `trained`."""
    bases = [run for run in map(params.get_start_run, trained) if run.algorithm == BASE]
    return list(dict.fromkeys([*bases, *trained]))


def build_prepare_spec(params: Params, benchmark: str) -> PrepareSpec:
    return PrepareSpec(
        benchmark=benchmark,
        data_seed=params.data_seed,
        demonstrations=_count_pretraining_problems(params, benchmark),
        **params.benchmarks[benchmark].model_dump(include={"source", "train", "test", "reserved"}),
    ).with_code_digest()


def _count_pretraining_problems(params: Params, benchmark: str) -> int:
    """Return how many problems to generate for pre-training; 0 if no needed model uses them."""
    models = [params.models[name] for name in list_needed_models(params)]
    is_needed = any(benchmark in getattr(model, "benchmarks", ()) for model in models)
    return params.pretraining.demonstrations if is_needed else 0


def list_needed_models(params: Params) -> list[ModelName]:
    """List the base models of all runs (tables, studies, arena), and the teacher if needed."""
    trained = [*list_table_runs(params), *list_study_runs(params), *list_arena_runs(params)]
    distilled = [] if params.imitation.demonstrations else trained
    teachers = [params.teacher for run in distilled if is_supervised(run.algorithm)]
    return list(dict.fromkeys([*(run.model for run in trained), *teachers]))


def is_embedded(params: Params, model: ModelName) -> bool:
    """Return whether the pipeline pre-trains this model; otherwise it is a published model."""
    return isinstance(params.models[model], EmbeddedModel)


def list_source_files(spec: Spec) -> list[str]:
    """List the user's files that a job reads, as their paths are written in its manifest."""
    if isinstance(spec, PrepareSpec) and spec.source not in ("embedded", "hub"):
        return list_hashed_files(path := Path(spec.source), "**/*") or [str(path)]
    if isinstance(spec, FetchSpec):
        path = Path(spec.params.source)
        return list_hashed_files(path, *MODEL_FILES) or [str(path)] * path.is_file()
    return []


def build_tokenizer_spec(params: Params) -> TokenizerSpec:
    return TokenizerSpec(
        benchmarks=list(params.benchmarks), vocabulary=params.pretraining.vocabulary
    ).with_code_digest()


def build_model_spec(params: Params, model: str) -> PretrainSpec | FetchSpec:
    if not is_embedded(params, model):
        published = params.models[model].model_dump(include={"source", "revision"})
        return FetchSpec(model=model, params=published).with_code_digest()
    return PretrainSpec(
        model=model,
        data_seed=params.data_seed,
        threads=params.compute.threads,
        params=params.models[model],
        pretraining=params.pretraining,
    ).with_code_digest()


def build_distill_spec(params: Params, benchmark: str) -> DistillSpec | DemonstrateSpec:
    imitation = params.imitation  # the section of the supervised algorithm in params.yaml
    if imitation.demonstrations:
        return DemonstrateSpec(
            benchmark=benchmark,
            data_seed=params.data_seed,
            reserved=params.benchmarks[benchmark].reserved,
            demonstrations=imitation.demonstrations,
            error_rate=imitation.error_rate,
        ).with_code_digest()
    return DistillSpec(
        benchmark=benchmark,
        teacher=params.teacher,
        data_seed=params.data_seed,
        compute=_use_one_process(params.compute),
        chat=_is_chat_model(params, params.teacher),
        tensor_parallel=getattr(params.models[params.teacher], "tensor_parallel", 1),
        precision=imitation.teacher_precision,
        **imitation.model_dump(include={"temperature", "top_p", "samples"}),
        **_select_limits(params, benchmark),
    ).with_code_digest()


def uses_vllm_server(spec: Spec) -> bool:
    """Return whether a job samples from a vLLM server."""
    return isinstance(spec, TrainSpec) and spec.compute.uses_vllm_server(spec.run.algorithm)


def build_train_spec(params: Params, run: Run) -> TrainSpec:
    variant = parse_variant_name(run.algorithm)
    algorithm, changes = variant.algorithm, variant.changes
    objective = algorithm.get_loss_parameters(params)
    if objective:
        objective = objective.model_copy(update=changes.subset(type(objective).model_fields))
    # The algorithm that others start from (`training.start`) itself starts from the base model.
    updates = changes.subset(Training.model_fields) | params.get_start_settings(run.algorithm)
    training = params.training.model_copy(update=updates)
    sizes = params.benchmarks[run.benchmark]
    n_step, limits = changes.n_step or sizes.n_step, _select_limits(params, run.benchmark)
    if algorithm.is_supervised:  # SFT samples and grades nothing
        n_step, limits = 0, limits | {"timeout": 0.0, "grading": NO_PERMISSIONS}
    spec = TrainSpec(
        run=run,
        compute=params.compute,
        chat=_is_chat_model(params, run.model),
        n_step=n_step,
        H=variant.H,
        training=None if algorithm.is_supervised else training,
        objective=objective,
        sampling_batch=algorithm.get_sampling_batch_size(params),
        snapshots=changes.snapshots or 0,
        problems=changes.problems,
        **limits,
    ).with_code_digest()
    if not uses_vllm_server(spec):
        return spec
    # One GPU is the server's. Training uses the largest number of the others that divides n_step.
    processes = max(n for n in range(1, max(2, params.compute.processes)) if n_step % n == 0)
    compute = params.compute.model_copy(update={"processes": processes})
    return spec.model_copy(update={"compute": compute})


def build_evaluate_spec(params: Params, run: Run) -> EvaluateSpec:
    changes = None if run.algorithm == BASE else parse_variant_name(run.algorithm).changes
    return EvaluateSpec(
        run=run,
        compute=_use_one_process(params.compute),
        chat=_is_chat_model(params, run.model),
        pass_at=params.benchmarks[run.benchmark].pass_at,
        evaluation=params.evaluation,
        snapshots=(changes.snapshots or 0) if changes else 0,
        **_select_limits(params, run.benchmark),
    ).with_code_digest()


def build_report_spec(params: Params) -> ReportSpec:
    """Return the spec of reports; parameters that change no result are replaced by defaults."""
    fields = type(params).model_fields.items()
    defaults = {name: field.get_default() for name, field in fields if field.exclude}
    return ReportSpec(params=params.model_copy(update=defaults)).with_code_digest()


def _is_chat_model(params: Params, model: ModelName) -> bool:
    """Return whether a model uses its chat template; only published models have one."""
    return getattr(params.models[model], "chat", False)


def _use_one_process(compute: Compute) -> Compute:
    """Return the section `compute` with one process, for jobs that only sample."""
    return compute.model_copy(update={"processes": 1, "nodes": 1})


def _select_limits(params: Params, benchmark: BenchmarkName) -> dict:
    """Return the limits of completions and of grading, and the permissions of the grader."""
    limits = params.benchmarks[benchmark].model_dump(include={"max_completion_length", "timeout"})
    grading = params.grading.model_dump(include=BENCHMARKS[benchmark].unsafe_settings)
    return {**limits, "grading": GradingPermissions(**grading)}
