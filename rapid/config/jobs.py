"""Plans the pipeline's jobs: the inputs, the parameters (spec) and the folder of each job.

A job writes its files and a manifest.json into one folder (`rapid.artifacts.manifests`).
`rapid.freshness` compares the manifest with the job's spec and with the files.

1. The default is params.yaml in the working folder. Its jobs are in data/, models/, distilled/,
   runs/, evaluations/ and reports/. Changed parameters without a `name` use the same folders.
2. Jobs of parameters with a `name` are in folders of the same names below experiments/NAME/.
3. If the default has the same job as a named experiment, they share it: the job's files are in the
   default's folder, and it does not run again. Two jobs are the same if their specs are equal and
   they read the same folders.

The runs of a seed begin before those of the next seed; within a seed the order is random. So if a
machine is slow for a while, this affects all algorithms alike. An evaluation has the priority of
its run.
"""

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from rapid.algorithms.variant_names import is_supervised
from rapid.artifacts.layout import (
    ARENA,
    DEMONSTRATIONS,
    EVALUATION,
    EXPERIMENT_REPORT,
    MODEL,
    PROBLEMS,
    REPORT,
    RUN,
    STAGES,
    STUDIES,
    TOKENIZER,
    get_experiment_root,
    parse_folder,
)
from rapid.config import specs
from rapid.config.params import Params, load_files
from rapid.config.sources import DEFAULT_FILE, BadParams
from rapid.freshness import Job
from rapid.settings import describe_invalid

# The function that lists the runs of each report. `EXPERIMENT_REPORT` has the metrics that DVC
# compares.
LIST_RUNS = {
    REPORT: specs.list_table_runs,
    EXPERIMENT_REPORT: specs.list_dvc_runs,
    STUDIES: specs.list_study_runs,
    ARENA: specs.list_arena_runs,
}
REPORTS_ON_DEMAND = (STUDIES, ARENA)  # reports that are made only on request


class Plan:
    """All jobs of one set of parameters.

    A job's name is its folder in the default, such as runs/math/tiny-qwen2/pg/seed1. The folder of
    a job that a named experiment does not share is experiments/NAME/ followed by the job's name.

    Args:
        default: the plan of the default, with which a named experiment shares jobs.
        root: prefix of the folders of jobs that are not shared: "", or experiments/NAME/.
    """

    def __init__(self, params: Params, default: "Plan | None" = None, root: str = ""):
        self.params, self.default, self.root = params, default, root
        self._jobs: dict[str, Job] = {}

    @property
    def jobs(self) -> list[Job]:
        """The jobs of `REPORT` and, without a `name`, `EXPERIMENT_REPORT`, and the jobs they need.

        Each job comes after its inputs. `optional_jobs` has those of `REPORTS_ON_DEMAND`.
        """
        return [self.get_job(name) for name in self._needed_names]

    @property
    def optional_jobs(self) -> list[Job]:
        """The jobs that only the studies or the arena need, and their reports."""
        return [
            self.get_job(name) for name in self._planned_names if name not in self._needed_names
        ]

    def list_with_inputs(self, report: str) -> list[Job]:
        """Return all jobs that a report needs, each after its inputs, and the report's job last."""
        ordered: dict[str, Job] = {}

        def add_with_inputs(job: Job) -> None:
            for input_job in job.inputs:
                if input_job.folder not in ordered:
                    add_with_inputs(input_job)
            ordered[job.folder] = job

        add_with_inputs(self.get_job(report))
        return list(ordered.values())

    def get_job(self, name: str) -> Job:
        """Return a job by its name, whether or not a report needs it."""
        if name not in self._jobs:
            job = self._build_job(name)
            folder = name if self._is_shared(job) else f"{self.root}{name}"
            self._jobs[name] = replace(job, folder=folder)
        return self._jobs[name]

    def get_priority(self, name: str) -> int:
        """Return the job's priority; Snakemake starts the ready job with the highest one.

        An evaluation has the priority of its run. So if the pipeline is interrupted, most runs that
        it began are evaluated. All other jobs come before the runs.
        """
        template, names = parse_folder(name)
        run_name = RUN.format(**names) if template == EVALUATION else name
        return self._priorities.get(run_name, len(self._priorities) + 1)

    @cached_property
    def _priorities(self) -> dict[str, int]:
        """Return the priority of each run, a number from 1.

        Runs of lower seeds have higher priorities. Among runs of one seed the order is random. It
        differs between seeds, also if each seed is planned by itself.
        """
        seeds = {
            name: int(names["seed"])
            for name in sorted(self._planned_names)
            for template, names in [parse_folder(name)]
            if template == RUN
        }
        positions = {
            name: random.Random(f"{self.params.data_seed} {name}").random() for name in seeds
        }
        ordered = sorted(seeds, key=lambda name: (-seeds[name], positions[name]))
        return {name: priority for priority, name in enumerate(ordered, 1)}

    def get_folder(self, name: str) -> str:
        """Return the folder of a job, without building the job if no jobs can be shared."""
        return self.get_job(name).folder if self.default else f"{self.root}{name}"

    def _is_shared(self, job: Job) -> bool:
        """Return whether the default has the same job. Here `job.folder` is the job's name."""
        if self.default is None or job.folder not in self.default._planned_names:
            return False
        default_job = self.default.get_job(job.folder)
        input_folders, default_input_folders = (
            [input_job.folder for input_job in compared.inputs] for compared in (job, default_job)
        )
        return job.spec == default_job.spec and input_folders == default_input_folders

    @cached_property
    def _needed_names(self) -> list[str]:
        """Return the names of `jobs`."""
        params = self.params
        models = [MODEL.format(model=model) for model in specs.list_needed_models(params)]
        if any(specs.is_embedded(params, model) for model in specs.list_needed_models(params)):
            models.insert(0, TOKENIZER)
        problems = [PROBLEMS.format(benchmark=benchmark) for benchmark in params.benchmarks]
        reports = [REPORT] if params.name else [REPORT, EXPERIMENT_REPORT]
        return [*problems, *models, *self._list_results_in(REPORT), *reports]

    @cached_property
    def _planned_names(self) -> list[str]:
        """Return the names of all jobs: for the reports, the studies and the arena."""
        results = {report: self._list_results_in(report) for report in REPORTS_ON_DEMAND}
        on_demand = [
            name for report, names in results.items() if names for name in (*names, report)
        ]
        return list(dict.fromkeys([*self._needed_names, *on_demand]))

    def _build_job(self, name: str) -> Job:
        """Build a job; its folder is its name, as in the default.

        The `options` of a job are those of its command, with the paths to read (`Job`).
        """
        template, names = parse_folder(name)
        builders = {
            PROBLEMS: self._build_prepare,
            TOKENIZER: self._build_tokenizer,
            MODEL: self._build_model,
            DEMONSTRATIONS: self._build_distill,
            RUN: self._build_train,
            EVALUATION: self._build_evaluate,
        }
        if template in builders:
            return builders[template](name, **names)
        rule = next(rule for rule, stage in STAGES.items() if stage.folder == template)
        inputs = tuple(self.get_job(result) for result in self._list_results_in(name))
        return Job(rule, name, specs.build_report_spec(self.params), inputs=inputs)

    def _build_prepare(self, name: str, benchmark: str) -> Job:
        spec = specs.build_prepare_spec(self.params, benchmark)
        return Job("prepare", name, spec, sources=specs.list_source_files(spec))

    def _build_tokenizer(self, name: str) -> Job:
        spec = specs.build_tokenizer_spec(self.params)
        data = self._get_problem_jobs(spec.benchmarks)
        options = {"data": [job.folder for job in data]}
        return Job("tokenizer", name, spec, options, inputs=data)

    def _build_model(self, name: str, model: str) -> Job:
        spec = specs.build_model_spec(self.params, model)
        if isinstance(spec, specs.FetchSpec):
            return Job("fetch", name, spec, sources=specs.list_source_files(spec))
        benchmarks = self.params.benchmarks
        if unknown := [name for name in spec.params.benchmarks if name not in benchmarks]:
            reason = f"must be one of the benchmarks {', '.join(benchmarks)}"
            raise BadParams(describe_invalid(f"models.{model}.benchmarks", unknown[0], reason))
        tokenizer, data = self.get_job(TOKENIZER), self._get_problem_jobs(spec.params.benchmarks)
        options = {"tokenizer": [tokenizer.folder], "data": [job.folder for job in data]}
        return Job("pretrain", name, spec, options, inputs=(*data, tokenizer))

    def _build_distill(self, name: str, benchmark: str) -> Job:
        spec = specs.build_distill_spec(self.params, benchmark)
        (data,) = self._get_problem_jobs([benchmark])
        options = {"data": [f"{data.folder}/train.jsonl"]}
        if isinstance(spec, specs.DemonstrateSpec):
            return Job("demonstrate", name, spec, options, inputs=(data,))
        teacher = self.get_job(MODEL.format(model=self.params.teacher))
        options = {"model": [teacher.folder], **options}
        return Job("distill", name, spec, options, inputs=(teacher, data))

    def _build_train(self, name: str, seed: str, **names: str) -> Job:
        run = specs.Run(**names, seed=int(seed))
        model, path = self._get_trained_model(self.params.get_start_run(run))
        if is_supervised(run.algorithm):
            template, file = DEMONSTRATIONS, "samples.jsonl"
        else:
            template, file = PROBLEMS, "train.jsonl"
        data = self.get_job(template.format(benchmark=run.benchmark))
        options = {"model": [path], "data": [f"{data.folder}/{file}"]}
        spec = specs.build_train_spec(self.params, run)
        return Job("train", name, spec, options, inputs=(model, data))

    def _build_evaluate(self, name: str, seed: str, **names: str) -> Job:
        run = specs.Run(**names, seed=int(seed))
        model, path = self._get_trained_model(run)
        (data,) = self._get_problem_jobs([run.benchmark])
        options = {"model": [path], "data": [f"{data.folder}/test.jsonl"]}
        spec = specs.build_evaluate_spec(self.params, run)
        return Job("evaluate", name, spec, options, inputs=(model, data))

    def _get_problem_jobs(self, benchmarks: Iterable[str]) -> tuple[Job, ...]:
        return tuple(self.get_job(PROBLEMS.format(benchmark=benchmark)) for benchmark in benchmarks)

    def _get_trained_model(self, run: specs.Run) -> tuple[Job, str]:
        """Return the job that writes a run's model, and the model's folder.

        If the run's algorithm is `BASE`, this is the model before training.
        """
        if run.algorithm == specs.BASE:
            job = self.get_job(MODEL.format(model=run.model))
            return job, job.folder
        job = self.get_job(run.folder)
        return job, f"{job.folder}/model"

    def _list_results_in(self, report: str) -> list[str]:
        """Return the names of the jobs whose results a report shows.

        These are the demonstrations, the training and the evaluations of its runs.
        """
        runs = LIST_RUNS[report](self.params)
        demonstrations = [
            DEMONSTRATIONS.format(benchmark=run.benchmark)
            for run in runs
            if is_supervised(run.algorithm)
        ]
        evaluations = [run.evaluation for run in specs.add_base_runs(self.params, runs)]
        return list(dict.fromkeys([*demonstrations, *(run.folder for run in runs), *evaluations]))


def build_plan(params: Params, root: Path | str = ".") -> Plan:
    """Return the plan of all jobs of these parameters.

    Args:
        root: the folder that contains the jobs' folders and the default's params.yaml.

    Raises:
        BadParams: the default's params.yaml has a wrong value, or a name.
    """
    if not params.name:
        return Plan(params)
    file = Path(root) / DEFAULT_FILE
    default = Plan(load_files(file)) if file.is_file() else None
    if default and default.params.name:
        reason = "must be null, because the default has no name: write the name in an overlay"
        raise BadParams(f"{file}: {describe_invalid('name', default.params.name, reason)}")
    return Plan(params, default, get_experiment_root(params.name))


def list_jobs(params: Params) -> list[Job]:
    """Return `Plan.jobs` of these parameters."""
    return build_plan(params).jobs
