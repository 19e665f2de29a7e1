"""RapidTrainer and TRL's GRPOTrainer, set alike in everything that they have in common.

Both sample with transformers, the same prompts in the same order with the same seeds; neither uses
gradient checkpointing. GRPOTrainer gets the settings that come nearest to RAPID.
"""

import tempfile
from dataclasses import dataclass

import torch
from datasets import Dataset
from transformers import AutoTokenizer, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from performance.models import Workload
from performance.rewards import Counted
from rapid import RapidConfig, RapidTrainer
from rapid.training.batches import trim_padding

# Of GRPOConfig, beside the sizes: docs/beside-trl.md says what differs from RAPID then, and why.
RECIPE = {
    "loss_type": "vespo",
    "vespo_k_pos": 1.0,
    "vespo_k_neg": 1.0,
    "vespo_lambda_pos": 1e-4,
    "vespo_lambda_neg": 1e-4,
    "scale_rewards": "none",
    "beta": 0.0,
}
ENDLESS = 10**6  # optimizer steps: measurements stop the loop
LEARNING_RATE = 1e-6  # so small that all steps sample from about the same policy


@dataclass(frozen=True)
class Setting:
    """What both sides of a comparison have in common."""

    H: int = 4  # optimizer steps on an inference batch
    n_step: int = 16  # completions of an optimizer step
    group: int = 4  # completions of a prompt
    micro_batch: int = 8  # completions of a forward and backward pass
    length: int = 80  # tokens that a completion may have
    fixed_length: bool = False  # all completions are as long as that
    processes: int = 1  # that share the work
    bf16: bool = False  # compute in bfloat16 where float32 is not needed

    @property
    def inference_batch(self) -> int:
        """The completions that are sampled at once."""
        return self.H * self.n_step


class PaddedPerPass(GRPOTrainer):
    """GRPOTrainer, but a pass is as wide as its own longest prompt and completion: trl#7179."""

    def _prepare_inputs(self, generation_batch):
        inputs = super()._prepare_inputs(generation_batch)
        rows = {name: value for name, value in inputs.items() if value.dim()}
        return inputs | trim_padding(rows)


def stock(
    workload: Workload, setting: Setting, reward: Counted, kind=GRPOTrainer, **more
) -> GRPOTrainer:
    """Return TRL's GRPOTrainer; `more` are further arguments of its configuration."""
    accumulation = setting.n_step // setting.micro_batch
    own = {
        "per_device_train_batch_size": setting.micro_batch,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": setting.H * accumulation,
    }
    return _build(kind, workload, setting, reward, GRPOConfig, own | RECIPE | more)


def rapid(workload: Workload, setting: Setting, reward: Counted, **more) -> RapidTrainer:
    """Return RapidTrainer; `more` are further arguments of its configuration."""
    own = {"H": setting.H, "n_step": setting.n_step, "micro_batch_size": setting.micro_batch}
    return _build(RapidTrainer, workload, setting, reward, RapidConfig, own | more)


SIDES = {"stock": stock, "rapid": rapid}


def _build(kind, workload: Workload, setting: Setting, reward: Counted, config, own: dict):
    gpu = torch.cuda.is_available()
    common = {
        "output_dir": tempfile.gettempdir(),  # nothing is written
        "seed": 0,
        "num_generations": setting.group,
        "max_completion_length": setting.length,
        "temperature": 1.0,
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "max_steps": ENDLESS,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "bf16": setting.bf16,
        "use_cpu": not gpu,
        "dataloader_pin_memory": gpu,
    }
    torch.set_num_threads(1)
    model = workload.load()
    tokenizer = AutoTokenizer.from_pretrained(workload.model, padding_side="left")
    if setting.fixed_length:  # a token that the model does not have would end a completion
        tokenizer.add_special_tokens({"eos_token": "<never>"})
        model.generation_config.eos_token_id = tokenizer.eos_token_id
    trainer = kind(
        model,
        reward,
        args=config(**common | own),
        train_dataset=Dataset.from_list(workload.rows(setting.inference_batch // setting.group)),
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer
