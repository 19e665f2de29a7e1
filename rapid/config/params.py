"""Reads params.yaml and its overlays into validated objects.

`load_files` reads YAML files, `load` takes merged YAML (Snakemake's `config`), and both return a
`Params`. A `Params` has the sections in `rapid.config.params_schema`, and one section for each
algorithm that has parameters. `rapid.config.specs` selects the parameters that a single job depends
on.

An overlay is a YAML file whose values override those of params.yaml. An inference batch has the
completions of H optimizer steps, n_step each, which are sampled together.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache, partial
from operator import attrgetter, eq
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError, create_model, model_validator

from rapid.algorithms import ALGORITHMS, RAPID, SFT
from rapid.algorithms.base import Parameters
from rapid.algorithms.variant_names import AlgorithmName, is_supervised, parse_variant_name
from rapid.benchmarks import BENCHMARKS
from rapid.config.arena import Arena
from rapid.config.equal_variants import find_equal_variants
from rapid.config.params_schema import (
    BASE,
    AnyModel,
    BenchmarkName,
    BenchmarkParams,
    Compute,
    DvcExperiment,
    EvaluationParams,
    Logging,
    ModelName,
    NameWithoutDots,
    Pretraining,
    ReportParams,
    Run,
    Section,
    Seed,
    Tables,
    Training,
    check_source,
)
from rapid.config.removed_models import check_dropped_models, remove_benchmarks
from rapid.config.sources import BadParams, locate_key, put_default_file_first, read
from rapid.config.studies import Studies
from rapid.grading.permissions import NO_PERMISSIONS, GradingPermissions
from rapid.settings import describe_invalid
from rapid.text import suggest_name

S = TypeVar("S", bound=Section)
CHECKPOINT_SECONDS = 600.0  # default seconds of training between two checkpoints
# Environment variables with settings that change no result. They are not in a job's spec, so no job
# runs again if they change.
CHECKPOINT_VARIABLE = "RAPID_CHECKPOINT_SECONDS"
REPORT_VARIABLE = "RAPID_REPORT_TO"
LIVE_FOLDER_VARIABLE = "RAPID_LIVE"  # folder whose runs report to `dvc exp show` as they train


class Params(Section):
    """All of params.yaml. The objects that `load` returns also have each algorithm's section."""

    name: NameWithoutDots | None = Field(
        None, description="name of an experiment; its results are in experiments/NAME/"
    )
    data_seed: Seed = Field(description="seed of the problems, their split and the embedded models")
    compute: Compute
    checkpoint_seconds: float = Field(
        CHECKPOINT_SECONDS,
        ge=0,
        allow_inf_nan=False,
        exclude=True,
        description="seconds of training between checkpoints; no job runs again if it changes",
    )
    logging: Logging = Field(Logging(), exclude=True, description="no job runs again if it changes")
    benchmarks: dict[BenchmarkName, BenchmarkParams] = Field(min_length=1)
    models: dict[ModelName, AnyModel] = Field(min_length=1)
    teacher: ModelName
    pretraining: Pretraining
    training: Training
    evaluation: EvaluationParams
    grading: GradingPermissions = NO_PERMISSIONS
    report: ReportParams = ReportParams()
    tables: Tables
    experiment: DvcExperiment
    studies: Studies | None = None
    arena: Arena | None = None

    @model_validator(mode="before")
    @classmethod
    def _remove_null_entries(cls, values: Any) -> Any:
        """Remove the benchmarks, models and studies that an overlay sets to null.

        Models are not pre-trained on removed benchmarks. A model without any other benchmark is
        removed too.
        """
        match values:
            case {"studies": {"compared": dict() as compared} as studies}:
                kept = {name: study for name, study in compared.items() if study is not None}
                values = values | {"studies": studies | {"compared": kept}}
        match values:
            case {"benchmarks": dict() as benchmarks, "models": dict() as models}:
                removed = [name for name, value in benchmarks.items() if value is None]
                kept = {name: remove_benchmarks(removed, model) for name, model in models.items()}
                dropped = [name for name in models if models[name] and kept[name] is None]
                check_dropped_models(dropped, values)
                models = kept
                sections = {"benchmarks": benchmarks, "models": models}
                return values | {
                    key: {name: value for name, value in section.items() if value is not None}
                    for key, section in sections.items()
                }
        return values

    @model_validator(mode="after")
    def _fill_in_seeds(self):
        """Give studies without seeds the seeds of the main table."""
        if self.studies and not self.studies.seeds:
            self.studies.seeds.extend(self.tables.main.seeds)
        return self

    @model_validator(mode="after")
    def _check_names(self):
        tables = self.tables
        studies = self.studies.compared.items() if self.studies else []
        arena = {}  # the sections of the arena that have an entry for each benchmark
        if self.arena:
            arena = {"fields": self.arena.fields, "maps": self.arena.planned_maps}
        models = [
            ("teacher", self.teacher),
            ("tables.main.model", tables.main.model),
            *(("tables.families.models", name) for name in tables.families.models),
            *(
                (f"studies.compared.{name}.model", study.model)
                for name, study in studies
                if study.model
            ),
        ]
        benchmarks = [
            ("tables.families.benchmark", tables.families.benchmark),
            ("experiment.benchmark", self.experiment.benchmark),
            *((f"studies.compared.{name}.benchmark", study.benchmark) for name, study in studies),
            *((f"arena.{key}.{name}", name) for key, part in arena.items() for name in part),
        ]
        for kind, section, references in (
            ("model", self.models, models),
            ("benchmark", self.benchmarks, benchmarks),
        ):
            for key, name in references:
                if name not in section:
                    names = f"{', '.join(section)}{suggest_name(name, section)}"
                    raise ValueError(
                        describe_invalid(key, name, f"must be one of the {kind}s {names}")
                    )
        return self

    @model_validator(mode="after")
    def _check_sources_and_batches(self):
        for name, benchmark in self.benchmarks.items():
            check_source(f"benchmarks.{name}.source", name, benchmark.source)
            if reason := self.evaluation.explain_too_few_samples(benchmark.pass_at):
                raise ValueError(
                    describe_invalid(f"benchmarks.{name}.pass_at", benchmark.pass_at, reason)
                )
            algorithms, start = self.list_algorithms(name), self.training.start
            if start in algorithms and not is_supervised(start):
                reason = (
                    f"{start} is one of the algorithms that are compared on {name}; must be "
                    f"{BASE}, {SFT.name} or an algorithm that is not compared"
                )
                raise ValueError(describe_invalid("training.start", start, reason))
            for algorithm in algorithms if start == BASE else [start, *algorithms]:
                self._check_batches(name, algorithm)
        return self

    @model_validator(mode="after")
    def _check_variants_differ(self):
        for key, benchmarks, names in self._list_comparisons():
            if pair := find_equal_variants(self, benchmarks, names):
                reason = f"has the same parameters as {pair[0]}; remove one of the two"
                raise ValueError(describe_invalid(key, pair[1], reason))
        return self

    def _list_comparisons(self) -> Iterator[tuple[str, list[BenchmarkName], list[AlgorithmName]]]:
        """Yield each list of algorithms that are compared: its key, its benchmarks, its names."""
        main, families = self.tables.main, self.tables.families
        yield "tables.main.algorithms", list(self.benchmarks), main.algorithms
        yield "tables.families.algorithms", [families.benchmark], families.algorithms
        for key, study in self.studies.compared.items() if self.studies else []:
            yield f"studies.compared.{key}.algorithms", [study.benchmark], study.algorithms
        for name, field in self.arena.fields.items() if self.arena else []:
            # In a field, variants may also differ in their learning rates.
            yield f"arena.fields.{name}.rates", [name], [*map(field.run_name, field.rates)]

    def list_algorithms(self, benchmark: BenchmarkName) -> list[AlgorithmName]:
        """Return the algorithms that are run on a benchmark, in the order of the tables."""
        tables = self.tables
        algorithms = [*tables.main.algorithms, *map(RAPID.format_name, tables.staleness.H)]
        if benchmark == self.experiment.benchmark:
            algorithms.append(self.dvc_algorithm)
        if benchmark == tables.families.benchmark:
            algorithms += tables.families.algorithms
        for study in self.studies.compared.values() if self.studies else []:
            algorithms += study.algorithms if study.benchmark == benchmark else []
        for arena_benchmark, names, _seeds in self.arena.list_entries() if self.arena else []:
            algorithms += names if arena_benchmark == benchmark else []
        return list(dict.fromkeys(algorithms))

    def get_start_settings(self, algorithm: AlgorithmName) -> dict[str, Any]:
        """Return `start` and `start_seed` of an algorithm's runs, see `Training`.

        SFT starts from the model before training, and so does the algorithm that others start from.
        """
        if is_supervised(algorithm) or algorithm == self.training.start:
            return {"start": BASE, "start_seed": None}
        return {"start": self.training.start, "start_seed": self.training.start_seed}

    def get_start_run(self, run: Run) -> Run:
        """Return the run whose model a run starts from; its algorithm may be `BASE`."""
        settings = self.get_start_settings(run.algorithm)
        seed = run.seed if settings["start_seed"] is None else settings["start_seed"]
        return run.model_copy(update={"algorithm": settings["start"], "seed": seed})

    @property
    def dvc_algorithm(self) -> AlgorithmName:
        """Return the algorithm whose runs `dvc exp show` compares."""
        return RAPID.format_name(getattr(self, RAPID.key).H)

    @property
    def imitation(self) -> Parameters:
        """Return the parameters of SFT and of sampling the teacher."""
        return getattr(self, SFT.key)

    def _check_batches(self, benchmark: BenchmarkName, name: AlgorithmName) -> None:
        """Check an algorithm's parameters, the sizes of its batches, and the number of prompts.

        Batches must have whole groups, and be divisible among the processes.
        """
        sizes, variant = self.benchmarks[benchmark], parse_variant_name(name)
        group = variant.changes.group_size or self.training.group_size
        error = variant.algorithm.find_config_error(self, group)
        if variant.algorithm.is_supervised:
            count = self.imitation.demonstrations
            if count and BENCHMARKS[benchmark].draw is None:
                reason = f"must be 0, because no problems can be generated for {benchmark}"
                error = f"{SFT.key}.demonstrations", count, reason
            if error:
                raise ValueError(describe_invalid(*error))
            return
        n_step = variant.changes.n_step or sizes.n_step
        if n_step % group:
            reason = f"must be a multiple of {group}, the group size of {name}"
            if variant.changes.n_step:
                raise ValueError(self._describe_invalid_name(name, f"its n_step {reason}"))
            raise ValueError(describe_invalid(f"benchmarks.{benchmark}.n_step", n_step, reason))
        prompts = variant.H * n_step // group  # of an inference batch
        key, count = f"benchmarks.{benchmark}.train", sizes.train
        problems = variant.changes.problems
        if is_changed := problems is not None and problems < count:
            count = problems
        if count < prompts:
            reason = (
                f"must be at least {prompts}, the number of prompts in an inference batch of "
                f"{name} (H x n_step / group size)"
            )
            if is_changed:
                raise ValueError(
                    self._describe_invalid_name(name, f"its number of problems {reason}")
                )
            raise ValueError(describe_invalid(key, count, reason))
        if error:
            raise ValueError(describe_invalid(*error))
        self._check_processes(benchmark, name, variant.H * n_step)

    def _describe_invalid_name(self, name: AlgorithmName, reason: str) -> str:
        """Return an error message about a variant's name, with the key of the list that has it."""
        lists = [(key, names) for key, _, names in self._list_comparisons()]
        key = next((key for key, names in lists if name in names), "training.start")
        return describe_invalid(key, name, reason)

    def _check_processes(self, benchmark: str, name: AlgorithmName, completions: int) -> None:
        """Check that the processes can run the algorithm, and share its completions evenly."""
        compute, algorithm = self.compute, parse_variant_name(name).algorithm
        if algorithm.scales_steps and compute.processes > 1:
            reason = (
                f"must be 1 with {name}, which sets the learning rate of each step: several "
                "processes use DeepSpeed, which takes the step before this rate is known"
            )
            raise ValueError(describe_invalid("compute.processes", compute.processes, reason))
        if compute.uses_vllm_server(name):  # then n_step decides the number of training processes
            if compute.nodes > 1:
                reason = (
                    f"must be 1, because the vLLM server of {name} has to be on the trainer's "
                    "machine"
                )
                raise ValueError(describe_invalid("compute.nodes", compute.nodes, reason))
        elif completions % compute.processes:
            reason = (
                f"must divide {completions}, the number of completions in an inference batch of "
                f"{name} on {benchmark} (H x n_step)"
            )
            raise ValueError(describe_invalid("compute.processes", compute.processes, reason))


@cache
def _build_params_class(*algorithms: str) -> type[Params]:
    """Build a subclass of `Params` with a section for each of these algorithms.

    When parameters are written to a file, a section that has only default values is left out.
    """
    sections: dict[str, Any] = {}
    # Supervised algorithms come last, as in params.yaml.
    for algorithm in sorted(map(ALGORITHMS.get, algorithms), key=attrgetter("is_supervised")):
        if section := algorithm.section or algorithm.parameters:
            required = any(field.is_required() for field in section.model_fields.values())
            default = ... if required else section()
            sections[algorithm.key] = (section, Field(default, exclude_if=partial(eq, default)))
    return create_model("Params", __base__=Params, **sections)


def load_files(*sources: Path | str) -> Params:
    """Read, merge and validate YAML files or JSON texts; later ones override earlier ones.

    Raises:
        BadParams: the message has a line for each invalid value, with its file and line, its key,
            the value, and why it is invalid.
    """
    return load(read(*sources), *sources)


def load_config_files(files: Iterable[Path | str]) -> Params:
    """Read `--configfile` as Snakemake does: params.yaml, if it exists, then these files over it.

    Raises:
        BadParams: as `load_files`.
    """
    return load_files(*put_default_file_first(files))


def load(values: dict, *sources: Path | str) -> Params:
    """Validate parameters that were read from these files and merged.

    Raises:
        BadParams: as `load_files`.
    """
    return validate(_build_params_class(*ALGORITHMS), values, *sources)


def validate(schema: type[S], values: dict, *sources: Path | str) -> S:
    """Validate values that were read from these files and merged, as a section of this class.

    Raises:
        BadParams: as `load_files`.
    """
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        messages = dict.fromkeys(_describe_error(item, values) for item in error.errors())
        lines = (
            f"{locate_key(line.partition(': ')[0], values, sources)}: {line}" for line in messages
        )
        raise BadParams("\n".join(lines)) from None


def _describe_error(item: dict, values: Any) -> str:
    """Return the error message for an item of a ValidationError: dotted key, value and problem."""
    parts = []
    for part in item["loc"]:
        if part in ("[key]", "embedded", "published"):  # added by pydantic; not keys of the file
            continue
        if not isinstance(values, dict if isinstance(part, str) else dict | list):
            break  # the file has a value in place of a section or list
        parts.append(part)
        values = values.get(part) if isinstance(values, dict) else values[part]
    key, message = ".".join(map(str, parts)), item["msg"].removeprefix("Value error, ")
    # A validator of a section raised the error. Its message begins with a key of the section.
    if item["type"] == "value_error" and isinstance(item["input"], dict):
        return f"{key}.{message}".removeprefix(".")
    if item["type"] == "missing":
        return f"{key}: is missing"
    # pydantic's messages begin as in "Input should be greater than 0".
    reason = re.sub(r"^\w+ should ", "must ", message)
    if item["type"] in ("model_type", "dict_type"):
        reason = "must be a section, with keys and values"
    elif item["type"] == "list_type":
        reason = "must be a list, in brackets"
    elif item["type"] == "too_short":
        count = item["ctx"]["min_length"]
        reason = f"must have at least {count} item{'s' * (count > 1)}"
    elif item["type"] == "invalid_key":
        reason = "a key must be a text"
    elif item["type"] == "literal_error":
        reason += suggest_name(str(item["input"]), re.findall(r"'([^']*)'", reason))
    return describe_invalid(key, item["input"], reason)
