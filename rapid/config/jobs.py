"""The jobs of the pipeline: what each reads, what decides its result, and where it lies.

A job lies in a folder and leaves a manifest.json there (`rapid.artifacts.manifests`), which
`rapid.freshness` checks against the job's spec and the files that are there.

1. The default, params.yaml in the working folder, has its jobs in data/, models/, distilled/,
   runs/, evaluations/ and reports/. So have changed parameters without a name.
2. Named parameters have theirs in folders of the same names below experiments/NAME/.
3. A job of named parameters that is also one of the default's is shared: it lies in the default's
   folder. It is the same job if its spec is equal and all jobs whose files it reads are shared.

Runs begin in blocks of seeds, in random order within a block: a machine that is slower for a while
is slower for all algorithms alike. They come after what they need, and an evaluation has the turn
of its run.
"""

import random
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from rapid.algorithms.names import imitates
from rapid.config import specs
from rapid.config.params import Params, load_files
from rapid.config.sections import not_allowed
from rapid.config.sources import BadParams
from rapid.freshness import Job

DEFAULT = "params.yaml"
STAGES = ("data", "models", "distill", "train", "evaluate", "report")  # as in dvc.yaml
EXPERIMENT = "reports/experiment"  # what DVC compares, which is versions of the default
REPORTS = ("reports", EXPERIMENT)
STUDIES, ARENA = "reports/studies", "reports/arena"
# Reports that are made only where somebody asks for them, and the runs that are in each.
ASKED_FOR = {STUDIES: specs.studied, ARENA: specs.in_arena}
TOKENIZER = "models/tokenizer"


class Plan:
    """The jobs of parameters. They are named by their folders in the default's layout.

    Args:
        default: the plan with which jobs are shared.
        root: where jobs lie that are not shared: "", or experiments/NAME/.
    """

    def __init__(self, params: Params, default: "Plan | None" = None, root: str = ""):
        self.params, self.default, self.root = params, default, root
        self._jobs: dict[str, Job] = {}

    @property
    def jobs(self) -> list[Job]:
        """Every job that the reports need, and the reports; each after those that it reads."""
        return [self.job(name) for name in self._needed]

    @property
    def asked_for(self) -> list[Job]:
        """Every job that only the studies or the arena need, and their reports; in that order."""
        return [self.job(name) for name in self._planned if name not in self._needed]

    def behind(self, report: str) -> list[Job]:
        """Return a report, after every job that it needs."""
        found: dict[str, Job] = {}

        def add(job: Job) -> None:
            for each in job.inputs:
                if each.folder not in found:
                    add(each)
            found[job.folder] = job

        add(self.job(report))
        return list(found.values())

    def job(self, name: str) -> Job:
        """Return a job, be it planned or not."""
        if name not in self._jobs:
            job = self._describe(name)
            folder = name if self._is_shared(job) else f"{self.root}{name}"
            self._jobs[name] = replace(job, folder=folder)
        return self._jobs[name]

    def priority(self, name: str) -> int:
        """Return how soon a job begins: of those that could, the one of highest priority does.

        An evaluation has its run's turn, so that what was interrupted has seeds that are complete.
        """
        return self._turns.get(name.replace("evaluations/", "runs/", 1), len(self._turns) + 1)

    @cached_property
    def _turns(self) -> dict[str, int]:
        """Return the priority of each planned run, above 0; the first in turn has the highest."""
        runs = sorted(name for name in self._planned if name.startswith("runs/"))
        random.Random(self.params.data_seed).shuffle(runs)
        runs.sort(key=lambda name: specs.Run.of_path(*name.split("/")[1:]).seed, reverse=True)
        return {name: turn for turn, name in enumerate(runs, 1)}

    def folder(self, name: str) -> str:
        """Return where a job lies."""
        return self.job(name).folder if self.default else f"{self.root}{name}"

    def _is_shared(self, job: Job) -> bool:
        if self.default is None or job.folder not in self.default._planned:
            return False
        theirs = self.default.job(job.folder)
        read, same = ([each.folder for each in one.inputs] for one in (job, theirs))
        return job.spec == theirs.spec and read == same

    @cached_property
    def _needed(self) -> list[str]:
        params, runs = self.params, specs.runs(self.params)
        models = [f"models/{name}" for name in specs.needed(params)]
        is_made = any(specs.is_made(params, name) for name in specs.needed(params))
        return [
            *(f"data/{name}" for name in params.benchmarks),
            *([TOKENIZER, *models] if is_made else models),
            *_from_demonstrations_on(runs),
            *(REPORTS[:1] if params.name else REPORTS),
        ]

    @cached_property
    def _planned(self) -> list[str]:
        """Return the names of the jobs that the reports need, and those that may be asked for."""
        found = {report: self._reported(report) for report in ASKED_FOR}
        more = [name for report, read in found.items() if read for name in (*read, report)]
        return list(dict.fromkeys([*self._needed, *more]))

    def _describe(self, name: str) -> Job:
        """Return a job as if it lay in the default's folder."""
        params = self.params
        room, *parts = name.split("/")
        match room:
            case "data":
                spec = specs.prepare_spec(params, *parts)
                return Job("data", name, spec, "prepare", sources=specs.source_files(spec))
            case "models":
                return self._model(name)
            case "distilled":
                return self._distillation(name, *parts)
            case "runs":
                return self._run(specs.Run.of_path(*parts))
            case "evaluations":
                return self._evaluation(specs.Run.of_path(*parts))
        return Job(
            "report", name, specs.report_spec(params), inputs=self._jobs_of(*self._reported(name))
        )

    def _jobs_of(self, *names: str) -> tuple[Job, ...]:
        return tuple(map(self.job, names))

    def _model(self, name: str) -> Job:
        if name == TOKENIZER:
            spec, command = specs.tokenizer_spec(self.params), "tokenizer"
            benchmarks = spec.benchmarks
        else:
            spec = specs.model_spec(self.params, name.removeprefix("models/"))
            if isinstance(spec, specs.FetchSpec):
                return Job("models", name, spec, "fetch", sources=specs.source_files(spec))
            command = f"pretrain --tokenizer {self.job(TOKENIZER).folder}"
            benchmarks, known = spec.params.benchmarks, self.params.benchmarks
            if unknown := [each for each in benchmarks if each not in known]:
                allowed = f"a benchmark of benchmarks: {', '.join(known)}"
                raise BadParams(not_allowed(f"models.{spec.model}.benchmarks", unknown[0], allowed))
        data = self._jobs_of(*(f"data/{each}" for each in benchmarks))
        command = " ".join([command, "--data", *(each.folder for each in data)])
        more = () if name == TOKENIZER else (self.job(TOKENIZER),)
        return Job("models", name, spec, command, (*data, *more))

    def _distillation(self, name: str, benchmark: str) -> Job:
        spec, data = specs.distill_spec(self.params, benchmark), self.job(f"data/{benchmark}")
        command, inputs = f"--data {data.folder}/train.jsonl", (data,)
        if isinstance(spec, specs.DemonstrateSpec):
            return Job("distill", name, spec, f"demonstrate {command}", inputs)
        teacher = self.job(f"models/{self.params.teacher}")
        command = f"distill --model {teacher.folder} {command}"
        return Job("distill", name, spec, command, (teacher, *inputs))

    def _trained(self, run: specs.Run) -> tuple[Job, str]:
        """Return the job that leaves a run's model, or the one before training, and its folder."""
        if run.algorithm == specs.BASE:
            job = self.job(f"models/{run.model}")
            return job, job.folder
        job = self.job(run.folder)
        return job, f"{job.folder}/model"

    def _run(self, run: specs.Run) -> Job:
        room, file = ("distilled", "samples") if imitates(run.algorithm) else ("data", "train")
        start = run.model_copy(update={"algorithm": self.params.start(run.algorithm)})
        model, path = self._trained(start)
        data = self.job(f"{room}/{run.benchmark}")
        command = f"train --model {path} --data {data.folder}/{file}.jsonl"
        spec = specs.train_spec(self.params, run)
        return Job("train", run.folder, spec, command, (model, data))

    def _evaluation(self, run: specs.Run) -> Job:
        model, path = self._trained(run)
        data = self.job(f"data/{run.benchmark}")
        command = f"evaluate --model {path} --data {data.folder}/test.jsonl"
        spec = specs.evaluate_spec(self.params, run)
        return Job("evaluate", run.evaluation, spec, command, (model, data))

    def _reported(self, name: str) -> list[str]:
        """Return the names of the jobs whose results are in a report."""
        if name in ASKED_FOR:
            return _from_demonstrations_on(ASKED_FOR[name](self.params))
        if name == EXPERIMENT:
            return _from_demonstrations_on(specs.compared(self.params))
        rooms = ("distilled", "runs", "evaluations")
        return [each for each in self._needed if each.split("/")[0] in rooms]


def _from_demonstrations_on(runs: list[specs.Run]) -> list[str]:
    """Return the names of runs, after the demonstrations, and of their evaluations."""
    imitated = [f"distilled/{run.benchmark}" for run in runs if imitates(run.algorithm)]
    evaluated = specs.evaluated(runs)
    made = [*imitated, *(run.folder for run in runs), *(run.evaluation for run in evaluated)]
    return list(dict.fromkeys(made))


def plan(params: Params, root: Path | str = ".") -> Plan:
    """Return the plan of parameters.

    Args:
        root: the folder below which jobs lie, and the default's params.yaml.

    Raises:
        BadParams: the default's params.yaml has a wrong value.
    """
    if not params.name:
        return Plan(params)
    file = Path(root) / DEFAULT
    default = Plan(load_files(file)) if file.is_file() else None
    return Plan(params, default, f"experiments/{params.name}/")


def jobs(params: Params) -> list[Job]:
    """Return every job that the reports need, and the reports; each after those that it reads."""
    return plan(params).jobs
