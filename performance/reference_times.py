"""Reference times: training with plain transformers alone, and sampling alone.

The model, prompts, lengths of completions, precision and threads are those of the training loop
with which the times are compared.
"""

import os
from collections.abc import Callable
from statistics import median

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer

from performance.models import Workload
from performance.parts import Setting
from performance.trainers import LEARNING_RATE, VLLM_SETTINGS, make_completion
from rapid.training.clock import read_synchronized_seconds

REPEATS = 3  # measurements of each time, after a first one that is discarded


def measure_reference_times(workload: Workload, setting: Setting) -> dict[str, float]:
    """Return seconds per 1,000 completions.

    Returns:
        `training_alone`: an optimizer step of supervised fine-tuning, with forward and backward
        passes in micro-batches and AdamW. `sampling_alone`: `generate` of vLLM or transformers on
        an inference batch.
    """
    prompts = _tokenize_prompts(workload, setting)
    training = _time_training(workload, setting, prompts) / setting.n_step
    prepare = _prepare_vllm if setting.vllm else _prepare_transformers
    sampling = _time_repeatedly(prepare(workload, setting, prompts)) / setting.inference_batch
    return {"training_alone": 1000 * training, "sampling_alone": 1000 * sampling}


def _time_training(workload: Workload, setting: Setting, prompts: list[list[int]]) -> float:
    """Return the seconds of an optimizer step of plain transformers."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = workload.load_from_folder().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    completions = [make_completion(row, setting.length) for row in range(setting.n_step)]
    rows = list(zip(prompts, completions, strict=False))  # of the first n_step prompts

    def take_step() -> None:
        for start in range(0, len(rows), setting.micro_batch):
            micro_batch = rows[start : start + setting.micro_batch]
            tokens = [torch.tensor([*prompt, *completion]) for prompt, completion in micro_batch]
            ids = pad_sequence(tokens, batch_first=True, padding_side="left").to(device)
            lengths = torch.tensor([[len(sequence)] for sequence in tokens], device=device)
            positions = torch.arange(ids.shape[1], 0, -1, device=device)  # counted from the end
            mask = (positions <= lengths).long()
            labels = ids.where(positions <= setting.length, -100)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=setting.bf16):
                loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return _time_repeatedly(take_step)


def _prepare_vllm(
    workload: Workload, setting: Setting, prompts: list[list[int]]
) -> Callable[[], object]:
    """Return a function that samples a completion of each prompt with vLLM."""
    # The engine runs in this process, as in training. In a process of its own it would not end.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM, SamplingParams

    from rapid.training.trl.vllm import prepare_engine

    folder = str(workload.load_from_folder().name_or_path)  # also saves an untrained model there
    dtype = "bfloat16" if setting.bf16 else "float32"
    engine = LLM(
        folder,
        dtype=dtype,
        max_model_len=VLLM_SETTINGS["vllm_max_model_length"],
        **prepare_engine(),
    )
    settings = SamplingParams(temperature=1.0, max_tokens=setting.length, ignore_eos=True)
    tokens = [{"prompt_token_ids": prompt} for prompt in prompts]

    def generate() -> object:
        engine.reset_prefix_cache()
        return engine.generate(tokens, settings, use_tqdm=False)

    return generate


def _prepare_transformers(
    workload: Workload, setting: Setting, prompts: list[list[int]]
) -> Callable[[], object]:
    """Return a function that samples a completion of each prompt with transformers."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = workload.load_from_folder().to(device).eval()
    tokenizer = AutoTokenizer.from_pretrained(workload.model, padding_side="left")
    model.generation_config.eos_token_id = None  # all completions have the greatest length
    settings = {"max_new_tokens": setting.length, "do_sample": True, "top_k": 0}
    settings["pad_token_id"] = tokenizer.pad_token_id

    @torch.no_grad()
    def generate() -> object:
        batch = tokenizer.pad({"input_ids": prompts}, return_tensors="pt").to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=setting.bf16):
            return model.generate(**batch, **settings)

    return generate


def _tokenize_prompts(workload: Workload, setting: Setting) -> list[list[int]]:
    """Return the prompts of an inference batch as token ids, repeated for each completion."""
    tokenizer = AutoTokenizer.from_pretrained(workload.model)
    rows = workload.build_rows(setting.inference_batch // setting.group)
    prompts = tokenizer([row["prompt"] for row in rows for _ in range(setting.group)])["input_ids"]
    return prompts[: setting.inference_batch]


def _time_repeatedly(function: Callable[[], object]) -> float:
    """Return the median time of a function's calls, in seconds."""
    seconds = []
    for _ in range(REPEATS + 1):
        began = read_synchronized_seconds()
        function()
        seconds.append(read_synchronized_seconds() - began)
    return median(seconds[1:])
