"""Reference times: training with plain transformers alone, and sampling with vLLM alone.

The model, prompts, lengths of completions, precision and threads are those of the training loop
with which the times are compared.
"""

import os
from collections.abc import Callable
from statistics import median

from performance.models import Workload
from performance.parts import Setting
from performance.trainers import LEARNING_RATE, VLLM_SETTINGS, make_completion
from rapid.training.clock import now

REPEATS = 3  # measurements of each time, after a first one that is discarded


def measure_reference_times(workload: Workload, setting: Setting) -> dict[str, float]:
    """Return seconds per 1,000 completions.

    Returns:
        `training_alone`: an optimizer step of supervised fine-tuning, with forward and backward
        passes in micro-batches and AdamW. `sampling_alone`: vLLM's `generate` on an inference
        batch. `step_sampling_alone`: the same on the completions of one optimizer step.
    """
    training = _time_training(workload, setting) / setting.n_step
    batch, step = _time_sampling(workload, setting)
    seconds = {"training_alone": training, "sampling_alone": batch, "step_sampling_alone": step}
    return {name: 1000 * value for name, value in seconds.items()}


def _time_training(workload: Workload, setting: Setting) -> float:
    """Return the seconds of an optimizer step with plain transformers."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = workload.load_from_folder().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    rows = list(zip(*_tokenize(workload, setting), strict=True))[: setting.n_step]

    def take_step() -> None:
        for start in range(0, len(rows), setting.micro_batch):
            micro_batch = rows[start : start + setting.micro_batch]
            width = max(len(prompt) + len(completion) for prompt, completion in micro_batch)
            tensors = torch.zeros(3, len(micro_batch), width, dtype=torch.long)
            ids, mask, labels = tensors
            labels -= 100
            for row, (prompt, completion) in enumerate(micro_batch):
                tokens = torch.tensor([*prompt, *completion])
                ids[row, -len(tokens) :], mask[row, -len(tokens) :] = tokens, 1
                labels[row, -len(completion) :] = tokens[-len(completion) :]
            ids, mask, labels = tensors.to(device)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=setting.bf16):
                loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return _time_repeatedly(take_step)


def _time_sampling(workload: Workload, setting: Setting) -> tuple[float, float]:
    """Return vLLM's seconds per completion, for an inference batch and for an optimizer step."""
    # The engine runs in this process, as in training. As a separate process it would not end.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM, SamplingParams

    from rapid.training.trl.vllm import prepare_engine

    folder = str(workload.load_from_folder().name_or_path)
    dtype = "bfloat16" if setting.bf16 else "float32"
    engine = LLM(
        folder,
        dtype=dtype,
        max_model_len=VLLM_SETTINGS["vllm_max_model_length"],
        **prepare_engine(),
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
    rows = workload.build_rows(setting.inference_batch // setting.group)
    prompts = tokenizer([row["prompt"] for row in rows for _ in range(setting.group)])["input_ids"]
    prompts = prompts[: setting.inference_batch]
    return prompts, [make_completion(row, setting.length) for row in range(len(prompts))]


def _time_repeatedly(function: Callable[[], None]) -> float:
    """Return the median time of a function's calls, in seconds."""
    seconds = []
    for _ in range(REPEATS + 1):
        began = now()
        function()
        seconds.append(now() - began)
    return median(seconds[1:])
