"""Builds RapidTrainer and TRL's GRPOTrainer with equal settings, to compare them.

Both sample with transformers or with vLLM, on the same prompts in the same order with the same
seeds. GRPOTrainer gets the settings that come nearest to RAPID.
"""

import tempfile
from dataclasses import replace
from functools import partial

import torch
from datasets import Dataset
from transformers import AutoTokenizer, PrinterCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig

from performance.models import Workload
from performance.parts import Setting
from performance.rewards import Counted
from rapid import RapidConfig, RapidTrainer
from rapid.training.clock import PhaseClock
from rapid.training.sft import ImitatingTrainer
from rapid.training.trl.vllm import patch_weight_sync

# Settings of GRPOConfig that come nearest to RAPID. docs/beside-trl.md says what still differs.
RECIPE = {
    "loss_type": "vespo",
    "vespo_k_pos": 1.0,
    "vespo_k_neg": 1.0,
    "vespo_lambda_pos": 1e-4,
    "vespo_lambda_neg": 1e-4,
    "scale_rewards": "none",
    "beta": 0.0,
}
# vLLM in the trainer's process. TRL's correction of its log-probs is off: RAPID weights anyway, and
# "vespo" refuses its default mode.
VLLM = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_max_model_length": 1024,
    "vllm_importance_sampling_correction": False,
}
ENDLESS = 10**6  # optimizer steps; the loop is stopped when the measurements are done
LEARNING_RATE = 1e-6  # so small that the policy hardly changes during the measurements


class ScriptedCompletions:
    """Mixin that replaces a trainer's sampling by generated completions of the greatest length."""

    def _generate_single_turn(self, prompt_ids, *_, **__):
        length = self.args.max_completion_length
        return [make_completion(row, length) for row in range(len(prompt_ids))], None


def make_completion(row: int, length: int) -> list[int]:
    """Return the token ids of a completion; they differ between any thousand successive rows.

    None of them is the padding (0) or the end-of-text token (1) of `build_untrained`'s tokenizer.
    """
    return [2 + (row + position) % 1000 for position in range(length)]


def build_stock(workload: Workload, setting: Setting, reward: Counted, **settings) -> GRPOTrainer:
    """Build TRL's GRPOTrainer; `settings` are further arguments of its configuration."""
    accumulation = setting.n_step // setting.micro_batch
    sizes = {
        "per_device_train_batch_size": setting.micro_batch,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": setting.H * accumulation,
    }
    loss = {"beta": 0.0} if setting.scripted else RECIPE  # memory: TRL's default loss
    trainer = _build_trainer(
        GRPOTrainer, GRPOConfig, workload, setting, reward, sizes | loss | settings
    )
    if setting.vllm and not torch.cuda.is_available():  # where TRL's weight sync fails
        patch_weight_sync(trainer.vllm_generation, PhaseClock())
    return trainer


def build_rapid(workload: Workload, setting: Setting, reward: Counted, **settings) -> RapidTrainer:
    """Build RapidTrainer; `settings` are further arguments of its configuration."""
    sizes = {"H": setting.H, "n_step": setting.n_step, "micro_batch_size": setting.micro_batch}
    sizes["grading_workers"] = setting.grading_workers
    if setting.scripted:  # train on every micro-batch, as GRPOTrainer does
        sizes["skip_zero_groups"] = False
    return _build_trainer(RapidTrainer, RapidConfig, workload, setting, reward, sizes | settings)


def build_imitating(workload: Workload, setting: Setting, _, **settings) -> ImitatingTrainer:
    """Build the trainer of supervised fine-tuning, with generated demonstrations."""
    tokenizer = AutoTokenizer.from_pretrained(workload.model)
    prompt = tokenizer(workload.prompts[0])["input_ids"]
    completion = make_completion(0, setting.length)
    mask = [0] * len(prompt) + [1] * len(completion)
    demonstration = {"input_ids": prompt + completion, "completion_mask": mask}
    sizes = {"per_device_train_batch_size": setting.n_step, "max_length": None}
    return ImitatingTrainer(
        workload.load(),
        SFTConfig(**_common_arguments(setting) | sizes | {"completion_only_loss": True} | settings),
        train_dataset=Dataset.from_list([demonstration] * setting.inference_batch),
        processing_class=tokenizer,
        micro_batch=setting.micro_batch,
    )


def _build_on_policy(build, workload: Workload, setting: Setting, reward, **settings):
    """Build a trainer that samples a batch for each optimizer step (H = 1)."""
    return build(workload, replace(setting, H=1), reward, **settings)


# The trainers that parts.yaml can name as sides of a comparison. GRPOTrainer samples for each step
# by default. RapidTrainer with H = 1 is policy gradient.
SIDES = {
    "stock": build_stock,
    "stock_default": partial(_build_on_policy, build_stock),
    "rapid": build_rapid,
    "policy_gradient": partial(_build_on_policy, build_rapid),
    "sft": build_imitating,
}


def _common_arguments(setting: Setting) -> dict:
    """Return the training arguments that all sides share."""
    gpu = torch.cuda.is_available()
    return {
        "output_dir": tempfile.gettempdir(),  # nothing is written
        "seed": 0,
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "max_steps": ENDLESS,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "gradient_checkpointing": setting.checkpointing,
        "bf16": setting.bf16,
        "use_cpu": not gpu,
        "dataloader_pin_memory": gpu,
    }


def _build_trainer(kind, config, workload: Workload, setting: Setting, reward, settings: dict):
    sampling = {
        "num_generations": setting.group,
        "max_completion_length": setting.length,
        "temperature": 1.0,
    }
    model = workload.load_from_folder() if setting.vllm else workload.load()
    tokenizer = AutoTokenizer.from_pretrained(workload.model, padding_side="left")
    if setting.vllm:
        settings = VLLM | settings
    if setting.fixed_length:  # make a token the end of text that the model cannot sample
        tokenizer.add_special_tokens({"eos_token": "<never>"})
        model.generation_config.eos_token_id = tokenizer.eos_token_id
    if setting.scripted:
        kind = type(kind.__name__, (ScriptedCompletions, kind), {})
    trainer = kind(
        model,
        reward,
        args=config(**_common_arguments(setting) | sampling | settings),
        train_dataset=Dataset.from_list(workload.rows(setting.inference_batch // setting.group)),
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer
