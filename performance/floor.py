"""What the work of a training loop costs without a trainer: the least that it could take.

1. Sampling: `transformers.generate` on the same prompts in the same batches with the same seeds.
2. Forward and backward: the model's floating-point operations over the rate at which this machine
   multiplies matrices of the model's shapes. Attention's are counted, element-wise ones are not.

Two amounts of work: `all`, each completion with a prompt of its own, as a loop without savings needs
it; and `least`, only the groups that contribute to the gradient, and each group's prompt once. Neither
has padding, nor a forward pass for log-probabilities.

The functions run in the process of a loop (`Loop.call`), on the completions of its last steps.
"""

import time
from statistics import median
from types import SimpleNamespace

import torch
from torch import nn

from performance.runs import SEED
from performance.trainers import Setting
from rapid.algorithms import RAPID

FORWARD_AND_BACKWARD = 3  # a backward pass multiplies twice as much as a forward pass
REPEATS = 5


def sampler_seconds(trainer, setting: Setting) -> dict:
    """Seconds to sample again what the loop has sampled last, and the mean length of that."""
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
    """Floating-point operations of forward and backward for the completions sampled last."""
    reward, group = trainer.reward_funcs[0], setting.group
    model = trainer.accelerator.unwrap_model(trainer.model)
    prompts = [len(ids) for ids in trainer.processing_class(reward.prompts)["input_ids"]]
    amounts = {"all": 0.0, "least": 0.0}
    alive = _alive(trainer, setting)
    for row, (prompt, completion) in enumerate(zip(prompts, reward.lengths, strict=True)):
        amounts["all"] += operations(model, prompt, completion)
        if alive[row // group]:
            once = operations(model, prompt, 0) if row % group == 0 else 0.0
            amounts["least"] += once + operations(model, prompt, completion, prompt_known=True)
    return {name: FORWARD_AND_BACKWARD * amount for name, amount in amounts.items()}


def _alive(trainer, setting: Setting) -> list[bool]:
    """Which groups of those sampled last contribute to RAPID's gradient."""
    verdicts, eta = trainer.reward_funcs[0].verdicts, getattr(trainer.args, "eta", torch.inf)
    settings = SimpleNamespace(eta=eta, baseline="group", weighted=True)
    alive = []
    for number, start in enumerate(range(0, len(verdicts), setting.n_step)):
        rewards = torch.tensor(verdicts[start : start + setting.n_step])
        on_policy = number % setting.H == 0
        some = RAPID.contributes(rewards, setting.group, settings, on_policy=on_policy)
        alive += some.tolist()
    return alive


def operations(model, prompt: int, completion: int, prompt_known: bool = False) -> float:
    """Floating-point operations of one sequence's forward pass: 2 for each multiply-add.

    The output layer is needed for the completion's tokens only. Attention is causal.
    """
    config = model.config.get_text_config()
    head = config.hidden_size * config.vocab_size
    layers = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear)) - head
    seen = prompt if prompt_known else 0  # their keys are there; others attend to them
    total = prompt + completion
    pairs = (total * (total + 1) - seen * (seen + 1)) / 2
    width = config.num_attention_heads * getattr(
        config, "head_dim", config.hidden_size // config.num_attention_heads
    )
    attention = 2 * config.num_hidden_layers * width * pairs  # scores, and weighted values
    return 2 * (layers * (total - seen) + head * completion + attention)


def multiply_rate(trainer, setting: Setting) -> float:
    """Floating-point operations a second of the model's own matrix products, as a pass has them."""
    reward = trainer.reward_funcs[0]
    model = trainer.accelerator.unwrap_model(trainer.model)
    prompts = [len(ids) for ids in trainer.processing_class(reward.prompts)["input_ids"]]
    tokens = setting.micro_batch * (sum(prompts) + sum(reward.lengths)) // len(prompts)
    seconds = operations = 0.0
    shapes = [m.weight.shape for m in model.modules() if isinstance(m, nn.Linear)]
    for shape in set(shapes):
        x = torch.randn(tokens, shape[1], device=model.device)
        gradient = torch.randn(tokens, shape[0], device=model.device)
        weight = torch.randn(shape, device=model.device)
        times = []
        for _ in range(REPEATS + 1):
            began = time.perf_counter()
            torch.mm(x, weight.T)
            torch.mm(gradient, weight)
            torch.mm(gradient.T, x)
            times.append(time.perf_counter() - began)
        times.pop(0)
        seconds += median(times) * shapes.count(shape)
        operations += 3 * 2 * tokens * shape.numel() * shapes.count(shape)
    return operations / seconds
