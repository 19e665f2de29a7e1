"""Builds RapidTrainer and TRL's GRPOTrainer with equal settings, to compare them.

Both use the same sampler (transformers or vLLM), seeds and order of prompts. GRPOTrainer has the
loss that is nearest to RAPID's, except with scripted completions (`Setting.scripted`), on which
memory is measured: then it has TRL's default loss.
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
from performance.rewards import RecordingReward
from rapid import RapidConfig, RapidTrainer
from rapid.training.clock import PhaseClock
from rapid.training.sft import MicroBatchSFTTrainer
from rapid.training.trl.vllm import patch_weight_sync

# Settings of GRPOConfig that are nearest to RAPID. docs/beside-trl.md says what still differs.
NEAREST_SETTINGS = {
    "loss_type": "vespo",
    "vespo_k_pos": 1.0,
    "vespo_k_neg": 1.0,
    "vespo_lambda_pos": 1e-4,
    "vespo_lambda_neg": 1e-4,
    "scale_rewards": "none",
    "beta": 0.0,
}
# vLLM in the trainer's process. Importance sampling correction is off, because RAPID's loss has
# importance weights already, and "vespo" does not work with the correction's default mode.
VLLM_SETTINGS = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_max_model_length": 1024,
    "vllm_importance_sampling_correction": False,
}
MAX_STEPS = 10**6  # never reached: the loop is stopped after the measurements
LEARNING_RATE = 1e-6  # so small that the policy hardly changes during the measurements


class ScriptedCompletions:
    """Mixin for a trainer that replaces sampling by completions from `make_completion`."""

    def _generate_single_turn(self, prompt_ids, *_, **__):
        length = self.args.max_completion_length
        return [make_completion(row, length) for row in range(len(prompt_ids))], None


def make_completion(row: int, length: int) -> list[int]:
    """Return the token ids of a completion, which differs from those of the next 999 rows.

    No token is the padding (0) or the end of text (1) of `build_untrained_workload`'s tokenizer.
    """
    return [2 + (row + position) % 1000 for position in range(length)]


def build_grpo_trainer(
    workload: Workload, setting: Setting, reward: RecordingReward, **arguments
) -> GRPOTrainer:
    """Build TRL's GRPOTrainer; `arguments` are further arguments of GRPOConfig."""
    accumulation = setting.n_step // setting.micro_batch
    sizes = {
        "per_device_train_batch_size": setting.micro_batch,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": setting.H * accumulation,
    }
    # Memory is compared with that of TRL's default loss.
    loss = {"beta": 0.0} if setting.scripted else NEAREST_SETTINGS
    trainer = _build_trainer(
        GRPOTrainer, GRPOConfig, workload, setting, reward, sizes | loss | arguments
    )
    if setting.vllm and not torch.cuda.is_available():  # TRL's weight sync fails on CPUs
        patch_weight_sync(trainer.vllm_generation, PhaseClock())
    return trainer


def build_rapid_trainer(
    workload: Workload, setting: Setting, reward: RecordingReward, **arguments
) -> RapidTrainer:
    """Build RapidTrainer; `arguments` are further arguments of RapidConfig."""
    options = {"H": setting.H, "n_step": setting.n_step, "micro_batch_size": setting.micro_batch}
    options["grading_workers"] = setting.grading_workers
    if setting.scripted:  # train on all micro-batches, as GRPOTrainer does
        options["skip_zero_groups"] = False
    return _build_trainer(RapidTrainer, RapidConfig, workload, setting, reward, options | arguments)


def build_sft_trainer(workload: Workload, setting: Setting, _, **arguments) -> MicroBatchSFTTrainer:
    """Build the trainer of supervised fine-tuning, on copies of one generated demonstration.

    It is called like the others, but has no use for a reward function.
    """
    tokenizer = AutoTokenizer.from_pretrained(workload.model)
    prompt = tokenizer(workload.prompts[0])["input_ids"]
    completion = make_completion(0, setting.length)
    mask = [0] * len(prompt) + [1] * len(completion)
    demonstration = {"input_ids": prompt + completion, "completion_mask": mask}
    sizes = {"per_device_train_batch_size": setting.n_step, "max_length": None}
    return MicroBatchSFTTrainer(
        workload.load(),
        SFTConfig(
            **_build_common_arguments(setting) | sizes | {"completion_only_loss": True} | arguments
        ),
        train_dataset=Dataset.from_list([demonstration] * setting.inference_batch),
        processing_class=tokenizer,
        micro_batch=setting.micro_batch,
    )


def _build_on_policy(build_trainer, workload: Workload, setting: Setting, reward, **arguments):
    """Build a trainer that samples before each optimizer step (H = 1)."""
    return build_trainer(workload, replace(setting, H=1), reward, **arguments)


# The trainers that parts.yaml can name. H = 1 is GRPOTrainer's default. RapidTrainer with H = 1 is
# policy gradient.
TRAINERS = {
    "trl": build_grpo_trainer,
    "trl_on_policy": partial(_build_on_policy, build_grpo_trainer),
    "rapid": build_rapid_trainer,
    "policy_gradient": partial(_build_on_policy, build_rapid_trainer),
    "sft": build_sft_trainer,
}


def _build_common_arguments(setting: Setting) -> dict:
    """Return the training arguments that all trainers share."""
    gpu = torch.cuda.is_available()
    return {
        "output_dir": tempfile.gettempdir(),  # nothing is written
        "seed": 0,
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "max_steps": MAX_STEPS,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "gradient_checkpointing": setting.checkpointing,
        "bf16": setting.bf16,
        "use_cpu": not gpu,
        "dataloader_pin_memory": gpu,
    }


def _build_trainer(
    trainer_class, config_class, workload: Workload, setting: Setting, reward, arguments: dict
):
    sampling = {
        "num_generations": setting.group,
        "max_completion_length": setting.length,
        "temperature": 1.0,
    }
    rows = workload.build_rows(setting.inference_batch // setting.group)
    model = workload.load_from_folder() if setting.vllm else workload.load()
    tokenizer = AutoTokenizer.from_pretrained(workload.model, padding_side="left")
    if setting.vllm:
        arguments = VLLM_SETTINGS | arguments
    if setting.fixed_length:  # make the end of text a token that the model cannot sample
        tokenizer.add_special_tokens({"eos_token": "<never>"})
        model.generation_config.eos_token_id = tokenizer.eos_token_id
    if setting.scripted:
        bases = (ScriptedCompletions, trainer_class)
        trainer_class = type(trainer_class.__name__, bases, {})
    trainer = trainer_class(
        model,
        reward,
        args=config_class(**_build_common_arguments(setting) | sampling | arguments),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer
