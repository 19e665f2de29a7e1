"""The least time that a step can take: plain transformers trains, and vLLM samples, on their own.

Both work on the completions of a training loop: the same prompts and numbers of tokens, the same
model, precision and threads. They are measured in a fresh process.
"""

import os
from collections.abc import Callable
from statistics import median

from performance.models import Workload
from performance.parts import Setting
from performance.trainers import LEARNING_RATE, VLLM, make_completion
from rapid.training.clock import read_seconds

REPEATS = 3  # of each measurement, after one to warm up; the median counts


def time_floors(workload: Workload, setting: Setting) -> dict[str, float]:
    """Return seconds per 1,000 completions.

    `plain` is a forward pass, a backward pass and AdamW on the completions of an optimizer step, in
    micro-batches, with prompts and labels as in supervised fine-tuning. `generate` is vLLM's
    `generate` on an inference batch, and `generate_step` on the completions of one step.
    """
    plain = _time_training(workload, setting) / setting.n_step
    batch, step = _time_sampling(workload, setting)
    times = {"plain": plain, "generate": batch, "generate_step": step}
    return {name: 1000 * seconds for name, seconds in times.items()}


def _time_training(workload: Workload, setting: Setting) -> float:
    """Return the seconds of an optimizer step of plain transformers."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = workload.load_from_folder().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    rows = list(zip(*_tokenize(workload, setting), strict=True))[: setting.n_step]

    def take_step() -> None:
        for start in range(0, len(rows), setting.micro_batch):
            part = rows[start : start + setting.micro_batch]
            width = max(len(prompt) + len(completion) for prompt, completion in part)
            columns = torch.zeros(3, len(part), width, dtype=torch.long)
            ids, mask, labels = columns
            labels -= 100
            for row, (prompt, completion) in enumerate(part):
                tokens = torch.tensor([*prompt, *completion])
                ids[row, -len(tokens) :], mask[row, -len(tokens) :] = tokens, 1
                labels[row, -len(completion) :] = tokens[-len(completion) :]
            ids, mask, labels = columns.to(device)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=setting.bf16):
                loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return _time_repeatedly(take_step)


def _time_sampling(workload: Workload, setting: Setting) -> tuple[float, float]:
    """Return vLLM's seconds per completion for an inference batch, and for one step's part."""
    # The engine runs in this process, as in training. In a process of its own it would not end.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM, SamplingParams

    from rapid.training.trl.vllm import prepare_engine

    folder = str(workload.load_from_folder().name_or_path)
    dtype = "bfloat16" if setting.bf16 else "float32"
    engine = LLM(
        folder, dtype=dtype, max_model_len=VLLM["vllm_max_model_length"], **prepare_engine()
    )
    settings = SamplingParams(temperature=1.0, max_tokens=setting.length, ignore_eos=True)
    prompts = [{"prompt_token_ids": prompt} for prompt in _tokenize(workload, setting)[0]]

    def generate(count: int) -> None:
        engine.reset_prefix_cache()
        engine.generate(prompts[:count], settings, use_tqdm=False)

    counts = setting.inference_batch, setting.n_step
    batch, step = (
        _time_repeatedly(lambda count=count: generate(count)) / count for count in counts
    )
    return batch, step


def _tokenize(workload: Workload, setting: Setting) -> tuple[list[list[int]], list[list[int]]]:
    """Return the prompts and completions of an inference batch as token ids."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(workload.model)
    texts = [row["prompt"] for row in workload.rows(setting.inference_batch // setting.group)]
    prompts = tokenizer([t for t in texts for _ in range(setting.group)])["input_ids"]
    prompts = prompts[: setting.inference_batch]
    return prompts, [make_completion(row, setting.length) for row in range(len(prompts))]


def _time_repeatedly(work: Callable[[], None]) -> float:
    """Return the median of the seconds that `work` takes."""
    seconds = []
    for _ in range(REPEATS + 1):
        began = read_seconds()
        work()
        seconds.append(read_seconds() - began)
    return median(seconds[1:])
