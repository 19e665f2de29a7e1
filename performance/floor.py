"""What the work of a training loop costs without a trainer: the least that it could take.

1. Sampling: `transformers.generate` on the same prompts in the same batches with the same seeds.
2. Forward and backward: the model's floating-point operations over the rate at which this machine
   multiplies matrices of the model's shapes. Attention's are counted, element-wise ones are not.

Two amounts of work are counted. In `all` each completion has a prompt of its own, as a loop without
savings needs it. In `least` are only the groups that contribute to the gradient, and each group's
prompt once. Neither has padding, nor a forward pass for log-probabilities.
"""

import time
from collections import Counter
from statistics import median
from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.benchmark import Timer

from performance.loops import SEED
from performance.trainers import Setting
from rapid.algorithms import RAPID
from rapid.artifacts.manifests import peak_memory_mb
from rapid.cost.shapes import Shape, from_values

FORWARD_AND_BACKWARD = 3  # a backward pass multiplies twice as much as a forward pass
REPEATS = 5


def measure(trainer, setting: Setting) -> dict:
    """Return what the floor is made of, for the completions that a loop has sampled last."""
    sampler, rate = sampler_seconds(trainer, setting), multiply_rate(trainer, setting)
    return {"floor": {"sampler": sampler, "operations": work(trainer, setting), "rate": rate}}


def use(trainer, setting: Setting) -> dict[str, float]:
    """Return what tells how well a loop has used the processor, and the most memory it has held.

    `operations` are those of sampling and training on each completion once, whatever was left out.
    """
    forward = work(trainer, setting)["all"] / FORWARD_AND_BACKWARD
    return {
        "memory": peak_memory_mb(),  # before the matrices that are multiplied next
        "operations": forward * (1 + FORWARD_AND_BACKWARD),
        "peak_rate": peak_rate(trainer.accelerator.device, trainer.args.bf16),
    }


def peak_rate(device: torch.device, bf16: bool) -> float:
    """Return the operations per second of one large product of matrices."""
    size = 8192 if device.type == "cuda" else 128  # some CPUs have no bfloat16
    values = torch.randn(2, size, size, device=device, dtype=torch.bfloat16 if bf16 else None)
    product = Timer("x @ y", globals=dict(zip("xy", values, strict=True)))
    return 2 * size**3 / min(product.timeit(10).mean for _ in range(REPEATS))


def sampler_seconds(trainer, setting: Setting) -> dict:
    """Return the seconds to sample again what the loop sampled last, and the mean length."""
    prompts = trainer.reward_funcs[0].prompts
    size = setting.inference_batch
    first = trainer.state.global_step - len(prompts) // setting.n_step
    model, tokenizer = trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class
    ends = torch.tensor(trainer.eos_token_ids)
    seconds, lengths = 0.0, []
    for number, start in enumerate(range(0, len(prompts), size)):
        inputs = tokenizer(prompts[start : start + size], return_tensors="pt", padding=True)
        inputs = {name: inputs[name].to(model.device) for name in ("input_ids", "attention_mask")}
        torch.manual_seed(SEED + first + number * setting.H)
        began = time.perf_counter()
        output = model.generate(**inputs, generation_config=trainer.generation_config)
        seconds += time.perf_counter() - began
        completions = output[:, inputs["input_ids"].size(1) :].cpu()
        not_over = torch.isin(completions, ends).cumsum(1) == 0
        lengths += (not_over.sum(1) + 1).clamp(max=completions.size(1)).tolist()
    return {"seconds": seconds, "length": sum(lengths) / len(lengths)}


def work(trainer, setting: Setting) -> dict[str, float]:
    """Return the operations of forward and backward passes on what was sampled last."""
    reward, group = trainer.reward_funcs[0], setting.group
    shape = from_values(trainer.model.config.to_dict(), "the model's config")
    eta = getattr(trainer.args, "eta", torch.inf)
    settings = SimpleNamespace(eta=eta, baseline="group", weighted=True)
    alive = []  # of each group, whether it contributes to RAPID's gradient
    for number, step in enumerate(torch.tensor(reward.verdicts).split(setting.n_step)):
        on_policy = number % setting.H == 0
        alive += RAPID.contributes(step, group, settings, on_policy=on_policy).tolist()
    amounts = {"all": 0.0, "least": 0.0}
    lengths = zip(_prompt_lengths(trainer), reward.lengths, strict=True)
    for row, (prompt, completion) in enumerate(lengths):
        amounts["all"] += operations(shape, prompt, completion)
        if alive[row // group]:
            known = operations(shape, prompt, 0) if row % group else 0.0
            amounts["least"] += operations(shape, prompt, completion) - known
    return {name: FORWARD_AND_BACKWARD * amount for name, amount in amounts.items()}


def _prompt_lengths(trainer) -> list[int]:
    """Return the tokens of each prompt that was sampled from last."""
    prompts = trainer.reward_funcs[0].prompts
    return [len(ids) for ids in trainer.processing_class(prompts)["input_ids"]]


def operations(shape: Shape, prompt: int, completion: int) -> float:
    """Return the operations of one sequence's forward pass, 2 for each multiply-add.

    The output layer is needed for the completion's tokens only. Attention is causal.
    """
    head = shape.vocabulary * shape.hidden
    total = prompt + completion
    # Scores, and weighted values, of each token with itself and those before it.
    attention = 2 * shape.layers * shape.query_width * total * (total + 1) / 2
    return 2 * ((shape.multiplied - head) * total + head * completion + attention)


def multiply_rate(trainer, setting: Setting) -> float:
    """Return the operations per second of the model's matrix products, sized as in a pass."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    prompts, completions = _prompt_lengths(trainer), trainer.reward_funcs[0].lengths
    tokens = setting.micro_batch * (sum(prompts) + sum(completions)) // len(prompts)
    shapes = [m.weight.shape for m in model.modules() if isinstance(m, nn.Linear)]
    seconds = done = 0.0
    for shape, count in Counter(shapes).items():
        values = {
            "x": torch.randn(tokens, shape[1], device=model.device),
            "gradient": torch.randn(tokens, shape[0], device=model.device),
            "weight": torch.randn(shape, device=model.device),
        }
        products = "x @ weight.T; gradient @ weight; gradient.T @ x"
        times = [Timer(products, globals=values).timeit(1).mean for _ in range(REPEATS)]
        seconds += median(times) * count
        done += 3 * 2 * tokens * shape.numel() * count
    return done / seconds
