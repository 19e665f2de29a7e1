"""The process that test_vllm.py runs, for vLLM changes torch and the environment for good.

Builds engines on the CPU, samples with them, and writes what it found as JSON.
"""

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2ForCausalLM
from trl.generation.vllm_generation import VLLMGeneration

from rapid import RapidConfig, RapidTrainer
from rapid.training.clock import PhaseClock
from rapid.training.trl import vllm
from tests.training.loops import digits_sum, weights

SEED, TEMPERATURE, TOKENS = 3, 0.7, 16
# Longer than a block of vLLM's cache, which on CPUs is 32 tokens: there is something to share, and
# after a change of weights something stale to use.
PROMPTS = [[(7 * i + shift) % 250 + 2 for i in range(200)] for shift in (0, 0, 1, 1)]


def main(toy_model: Path, folder: Path) -> None:
    trainer = build(toy_model, folder / "out")
    found = {
        "dtype": str(vllm.engine_dtype(trainer.vllm_generation)),
        "seed": torch.initial_seed(),
        "trained": train(trainer),
        "resumed": resumed(trainer),
        "tied": synced(trainer.vllm_generation),
        "without the head": without_the_head(trainer.vllm_generation),
        "cached": cached_tokens(trainer.vllm_generation),
        "saved": saved(trainer, folder / "saved"),
    }
    make_untied(toy_model, folder / "untied")
    untied = engine(load(folder / "untied"))
    found["untied"] = synced(untied)
    adapter = LoraConfig(target_modules=["embed_tokens", "q_proj"])
    untied.model = get_peft_model(untied.model, adapter)
    found["adapted"] = synced(untied)
    (folder / "found.json").write_text(json.dumps(found))


def build(model: Path, folder: Path) -> RapidTrainer:
    """A trainer with vLLM for two inference batches of four steps, each sampled in two parts."""
    config = RapidConfig(
        str(folder),
        seed=SEED,
        use_vllm=True,
        vllm_mode="colocate",
        H=4,
        n_step=8,
        num_generations=4,
        micro_batch_size=4,
        sampling_batch_size=16,
        max_completion_length=TOKENS,
        temperature=TEMPERATURE,
        learning_rate=0.01,
        max_steps=8,
        logging_steps=1,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="steps",
        save_steps=3,  # within an inference batch, whose end they wait for
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    return RapidTrainer(
        load(model),
        digits_sum,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": f"prompt {i}"} for i in range(16)]),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    )


def train(trainer: RapidTrainer) -> dict:
    calls = watch_reloads(trainer.vllm_generation)
    trainer.train()
    _, late, _ = trainer.last_pass
    return {
        "mismatch": [
            row["rapid/sampler_mismatch"]
            for row in trainer.state.log_history
            if "rapid/sampler_mismatch" in row
        ],
        "seconds": dict(trainer.clock.seconds),
        "syncs": len(calls),
        "mu is the sampler's": torch.equal(late["behavior_logp"], late["sampler_logp"]),
    }


def resumed(trainer: RapidTrainer) -> bool:
    """Whether the run ends alike if it is resumed from its first checkpoint."""
    expected = weights(trainer)
    trainer._last_loaded_step = -1  # as in a process that has yet to sync
    perturb(trainer.model)
    trainer.train(str(Path(trainer.args.output_dir, "checkpoint-4")))
    return torch.equal(weights(trainer), expected)


def watch_reloads(generation: VLLMGeneration) -> list[list[str]]:
    """Collects, for each call that loads weights, the names that it takes."""
    runner, calls = vllm._model_runner(generation), []
    reload_weights = runner.reload_weights

    def noted(weights):
        for name, tensor in weights:
            calls[-1].append(name)
            yield name, tensor

    def watched(weights_iterator):
        calls.append([])
        reload_weights(weights_iterator=noted(weights_iterator))

    runner.reload_weights = watched
    return calls


def synced(generation: VLLMGeneration) -> dict:
    """What vLLM makes of other weights, whose cache still is of the old ones."""
    vllm.patch_weight_sync(generation, PhaseClock())
    calls = watch_reloads(generation)
    perturb(generation.model)
    stale = mismatch(generation)
    generation.sync_weights()
    return {
        "stale": stale,
        "after": mismatch(generation),
        "tensors of each call": [len(names) for names in calls],
        "tensors": len(list(generation.model.named_parameters())),
    }


def perturb(model) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def mismatch(generation: VLLMGeneration) -> float:
    """Mean |vLLM's log-probability - the model's| of the tokens that vLLM samples now."""
    _, completions, sampled_logp, _ = generation.generate(PROMPTS, None, 2)
    off = []
    for prompt, completion, logp in zip(PROMPTS, completions, sampled_logp, strict=True):
        tokens = torch.tensor([*prompt, *completion])
        with torch.no_grad():
            logits = generation.model(input_ids=tokens[None]).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits / TEMPERATURE, dim=-1)
        expected = expected.gather(1, tokens[len(prompt) :, None])  # (T, 1)
        off.append((expected - torch.tensor(logp)).abs())
    return torch.cat(off).mean().item()


def without_the_head(generation: VLLMGeneration) -> dict:
    """The same sync, but for the step that packs a tied head again; then a whole one."""
    pack_heads, vllm._pack_heads = vllm._pack_heads, lambda model: None
    perturb(generation.model)
    generation.sync_weights()
    stale = mismatch(generation)
    vllm._pack_heads = pack_heads
    generation.sync_weights()
    return {"stale": stale, "after": mismatch(generation)}


def cached_tokens(generation: VLLMGeneration) -> list[int]:
    """Of each prompt, how many tokens vLLM did not compute."""
    generation.llm.reset_prefix_cache()
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    return [output.num_cached_tokens for output in generation.llm.generate(prompts, use_tqdm=False)]


def saved(trainer: RapidTrainer, folder: Path) -> dict:
    trainer.save_model(str(folder))
    again = engine(load(folder))
    pairs = zip(again.model.parameters(), trainer.model.parameters(), strict=True)
    return {
        "equal": all(torch.equal(one, other) for one, other in pairs),
        "mismatch": mismatch(again),  # never synced: vLLM has read the folder
    }


def load(folder: Path):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def engine(model) -> VLLMGeneration:
    with vllm.match_engine_to_policy(SEED):
        return VLLMGeneration(
            model,
            Accelerator(cpu=True),
            AutoTokenizer.from_pretrained(model.name_or_path),
            temperature=TEMPERATURE,
            max_completion_length=TOKENS,
        )


def make_untied(model: Path, folder: Path) -> None:
    config = load(model).config
    config.tie_word_embeddings = False
    Qwen2ForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
