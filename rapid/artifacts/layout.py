"""Declares the pipeline's stages and the folders of their jobs.

The folders are those of the default (params.yaml without a `name`), relative to the working folder.
A named experiment has the same folders in experiments/NAME/ (`get_experiment_root`). Snakemake's
rules, dvc.yaml, `make clean` and .gitignore repeat them, so that each can be read on its own; tests
compare them with this table.
"""

import re
from dataclasses import dataclass
from pathlib import Path

EXPERIMENTS = "experiments"
# The stages of dvc.yaml. Each of them runs the jobs of one or more of the `STAGES` below.
PHASES = ("data", "models", "distill", "train", "evaluate", "report")

PROBLEMS = "data/{benchmark}"
TOKENIZER = "models/tokenizer"
MODEL = "models/{model}"
DEMONSTRATIONS = "distilled/{benchmark}"
RUN = "runs/{benchmark}/{model}/{algorithm}/seed{seed}"
EVALUATION = "evaluations/{benchmark}/{model}/{algorithm}/seed{seed}"
REPORT = "reports"
EXPERIMENT_REPORT = "reports/experiment"  # metrics that DVC compares between versions
STUDIES = "reports/studies"
ARENA = "reports/arena"


@dataclass(frozen=True)
class Stage:
    """A kind of job: a rule of Snakemake and, except for reports, a subcommand of `rapid`.

    Args:
        phase: the stage of dvc.yaml that runs these jobs; one of `PHASES`.
        folder: template of the jobs' folders.
        results: small output files that reports read. Snakemake's rules declare them as outputs,
            beside manifest.json.
    """

    phase: str
    folder: str
    results: tuple[str, ...] = ()


STAGES = {
    "prepare": Stage("data", PROBLEMS),
    "tokenizer": Stage("models", TOKENIZER),
    "pretrain": Stage("models", MODEL),
    "fetch": Stage("models", MODEL),
    "distill": Stage("distill", DEMONSTRATIONS),
    "demonstrate": Stage("distill", DEMONSTRATIONS),
    "train": Stage("train", RUN, ("summary.json", "steps.jsonl")),
    "evaluate": Stage("evaluate", EVALUATION, ("evaluation.json",)),
    "report": Stage("report", REPORT),
    "experiment": Stage("report", EXPERIMENT_REPORT),
    "studies": Stage("report", STUDIES),
    "arena": Stage("report", ARENA),
}
# The top folders of the stages: data, models, distilled, runs, evaluations. The last one, which is
# reports, is left out.
RESULT_FOLDERS = tuple(dict.fromkeys(stage.folder.split("/")[0] for stage in STAGES.values()))[:-1]


def parse_folder(folder: str) -> tuple[str, dict[str, str]]:
    """Return the template of a job's folder, and the values of the names in its braces.

    Args:
        folder: a folder of the default, without an experiment's root.

    Raises:
        ValueError: no template matches.
    """
    for template in dict.fromkeys(stage.folder for stage in STAGES.values()):
        if match := re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template), folder):
            return template, match.groupdict()
    raise ValueError(f"{folder}: is not the folder of a job")


def get_experiment_root(name: str) -> str:
    """Return an experiment's folder with a final slash; "" for the default, which has no name."""
    return f"{EXPERIMENTS}/{name}/" if name else ""


def list_roots() -> list[Path]:
    """Return the working folder, and the folders of the experiments in it."""
    return [Path(), *Path(EXPERIMENTS).glob("*/")]


def list_runs() -> list[Path]:
    """Return the folders of all runs that have begun, including those of experiments."""
    pattern = re.sub(r"\{\w+\}", "*", RUN)
    return [folder for root in list_roots() for folder in root.glob(f"{pattern}/")]
