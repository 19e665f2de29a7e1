"""Worker process of test_vllm.py: builds engines on the CPU, samples, and writes results as JSON.

It is a process of its own because vLLM changes torch and the environment permanently.
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
from vllm import SamplingParams

from rapid import RapidConfig, RapidTrainer
from rapid.training.clock import PhaseClock
from rapid.training.trl import vllm
from tests.training.loops import get_weights, text_sum_reward

SEED, TEMPERATURE, TOKENS = 3, 0.7, 16
# Longer than a block of vLLM's cache, 32 tokens on CPUs: there are blocks to share, and stale ones
# after a change of weights.
PROMPTS = [[(7 * i + shift) % 250 + 2 for i in range(200)] for shift in (0, 0, 1, 1)]


def main(toy_model: Path, folder: Path) -> None:
    trainer = build_vllm_trainer(toy_model, folder / "out")
    results = {
        "dtype": str(vllm.get_engine_dtype(trainer.vllm_generation)),
        "seed": torch.initial_seed(),
        "training": train_and_measure(trainer),
        "resumed_exactly": is_resumed_exactly(trainer),
        "tied": measure_sync(trainer.vllm_generation),
        "sync_without_head": measure_sync_without_head(trainer.vllm_generation),
        "cached_tokens": count_cached_tokens(trainer.vllm_generation),
        "ended": report_ended(trainer.vllm_generation),
        "saved_model": check_saved_model(trainer, folder / "saved"),
    }
    save_untied_model(toy_model, folder / "untied")
    untied_engine = build_engine(load_model(folder / "untied"))
    results["untied"] = measure_sync(untied_engine)
    adapter = LoraConfig(target_modules=["embed_tokens", "q_proj"])
    untied_engine.model = get_peft_model(untied_engine.model, adapter)
    results["adapted"] = measure_sync(untied_engine)
    (folder / "results.json").write_text(json.dumps(results))


def build_vllm_trainer(model: Path, folder: Path) -> RapidTrainer:
    """Return a trainer with vLLM for two inference batches of four steps, sampled in two parts."""
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
        save_steps=3,  # due within an inference batch: the save waits for its end
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    return RapidTrainer(
        load_model(model),
        text_sum_reward,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": f"prompt {i}"} for i in range(16)]),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    )


def train_and_measure(trainer: RapidTrainer) -> dict:
    reloads = watch_reloads(trainer.vllm_generation)
    trainer.train()
    _, micro_batch, _ = trainer.last_pass
    return {
        "mismatch": [
            row["rapid/sampler_mismatch"]
            for row in trainer.state.log_history
            if "rapid/sampler_mismatch" in row
        ],
        "seconds": dict(trainer.clock.seconds),
        "syncs": len(reloads),
        "sampler_logp_used": torch.equal(micro_batch["behavior_logp"], micro_batch["sampler_logp"]),
    }


def is_resumed_exactly(trainer: RapidTrainer) -> bool:
    """Return whether a run resumed from the first checkpoint ends with the same weights."""
    expected = get_weights(trainer)
    trainer._last_loaded_step = -1  # as in a process that has not synced yet
    perturb_weights(trainer.model)
    trainer.train(str(Path(trainer.args.output_dir, "checkpoint-4")))
    return torch.equal(get_weights(trainer), expected)


def watch_reloads(generation: VLLMGeneration) -> list[list[str]]:
    """Return a list that collects the names of the weights of each call that loads some."""
    runner, calls = vllm._get_model_runner(generation), []
    reload_weights = runner.reload_weights

    def iterate_and_record(named_weights):
        for name, tensor in named_weights:
            calls[-1].append(name)
            yield name, tensor

    def reload_and_record(weights_iterator):
        calls.append([])
        reload_weights(weights_iterator=iterate_and_record(weights_iterator))

    runner.reload_weights = reload_and_record
    return calls


def measure_sync(generation: VLLMGeneration) -> dict:
    """Return vLLM's mismatch before and after a sync of changed weights, and the calls it took."""
    vllm.patch_weight_sync(generation, PhaseClock())
    calls = watch_reloads(generation)
    perturb_weights(generation.model)
    stale = measure_mismatch(generation)
    generation.sync_weights()
    return {
        "stale": stale,
        "after": measure_mismatch(generation),
        "tensors_per_call": [len(names) for names in calls],
        "tensors": len(list(generation.model.named_parameters())),
    }


def perturb_weights(model) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def measure_mismatch(generation: VLLMGeneration) -> float:
    """Return the mean |vLLM's log-probability - the model's| of tokens that vLLM samples now."""
    _, completions, sampled_logp, _ = generation.generate(PROMPTS, None, 2)
    differences = []
    for prompt, completion, logp in zip(PROMPTS, completions, sampled_logp, strict=True):
        tokens = torch.tensor([*prompt, *completion])
        with torch.no_grad():
            logits = generation.model(input_ids=tokens[None]).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits / TEMPERATURE, dim=-1)
        expected = expected.gather(1, tokens[len(prompt) :, None])  # (T, 1)
        differences.append((expected - torch.tensor(logp)).abs())
    return torch.cat(differences).mean().item()


def measure_sync_without_head(generation: VLLMGeneration) -> dict:
    """Return the mismatch after a sync that does not repack a tied head, and after a full one."""
    pack_heads, vllm._pack_heads = vllm._pack_heads, lambda model: None
    perturb_weights(generation.model)
    generation.sync_weights()
    stale = measure_mismatch(generation)
    vllm._pack_heads = pack_heads
    generation.sync_weights()
    return {"stale": stale, "after": measure_mismatch(generation)}


def report_ended(generation: VLLMGeneration) -> dict:
    """Return completions as reported while vLLM samples, and as returned at the end."""
    reported, running = {}, []

    def on_end(row: int, tokens: list[int]) -> None:
        reported[row] = tokens
        running.append(generation.llm.llm_engine.get_num_unfinished_requests())

    limits = [2, 5, 9, 12]
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    for _ in range(2):  # request numbers go on from one batch to the next
        reported.clear(), running.clear()
        with vllm.report_ended_completions(generation, on_end):
            settings = [SamplingParams(max_tokens=n, ignore_eos=True) for n in limits]
            outputs = generation.llm.generate(prompts, settings, use_tqdm=False)
    return {
        "reported": [reported[row] for row in range(len(prompts))],
        "returned": [[*output.outputs[0].token_ids] for output in outputs],
        "running": running,
    }


def count_cached_tokens(generation: VLLMGeneration) -> list[int]:
    """Return for each prompt how many tokens vLLM took from its cache."""
    generation.llm.reset_prefix_cache()
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    return [output.num_cached_tokens for output in generation.llm.generate(prompts, use_tqdm=False)]


def check_saved_model(trainer: RapidTrainer, folder: Path) -> dict:
    trainer.save_model(str(folder))
    engine = build_engine(load_model(folder))
    pairs = zip(engine.model.parameters(), trainer.model.parameters(), strict=True)
    return {
        "equal": all(
            torch.equal(loaded_weight, trained_weight) for loaded_weight, trained_weight in pairs
        ),
        "mismatch": measure_mismatch(engine),  # vLLM read the folder; nothing was synced
    }


def load_model(folder: Path):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def build_engine(model) -> VLLMGeneration:
    with vllm.match_engine_to_policy(SEED):
        return VLLMGeneration(
            model,
            Accelerator(cpu=True),
            AutoTokenizer.from_pretrained(model.name_or_path),
            temperature=TEMPERATURE,
            max_completion_length=TOKENS,
        )


def save_untied_model(model: Path, folder: Path) -> None:
    config = load_model(model).config
    config.tie_word_embeddings = False
    Qwen2ForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
