"""From GRPOTrainer to RapidTrainer: one script, in which two class names change and H is set.

What it shows: the functions of rapid.rewards work in TRL's GRPOTrainer. With `--rapid` the trainer
and its configuration come from rapid. The only other change is H, which GRPOTrainer does not have.
Without H, RapidTrainer would sample before each optimizer step, as GRPOTrainer does here.

Run:      pip install 'rapid-rl[graders]'
          python grpo_then_rapid.py, and then with --rapid
Prints:   trainer: GRPOTrainer
          mean reward: X in the first N steps, Y in the last N
Takes:    not measured yet. It is meant for one GPU
Smoke:    python grpo_then_rapid.py --smoke, 12 seconds of CPU time (AMD EPYC)
"""

import argparse
from typing import Any

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

from rapid.rewards import math_reward

INSTRUCTION = "Reason step by step, and put the final answer into \\boxed{}."

parser = argparse.ArgumentParser(description="Train on GSM8K with GRPOTrainer or RapidTrainer.")
parser.add_argument("--rapid", action="store_true", help="use RapidTrainer")
parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
parser.add_argument("--output", default="output/grpo_then_rapid")
parser.add_argument("--max_steps", type=int, default=400)
parser.add_argument("--smoke", action="store_true", help="a tiny model and a few steps")
arguments = parser.parse_args()

settings: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 4,  # 8 * 4 = 32 completions per optimizer step
    "num_generations": 8,  # completions per question
    "max_completion_length": 300,
    "learning_rate": 1e-6,
    "logging_steps": 8,
    "gradient_checkpointing": False,
}
if arguments.rapid:
    from rapid import RapidConfig as GRPOConfig
    from rapid import RapidTrainer as GRPOTrainer

    settings["H"] = 8  # optimizer steps per inference batch
if arguments.smoke:
    from smoke import load_dataset, shrink

    settings = shrink(arguments, settings)


def add_prompt(row: dict) -> dict:
    return {"prompt": [{"role": "user", "content": f"{row['question']}\n\n{INSTRUCTION}"}]}


trainer = GRPOTrainer(
    arguments.model,
    math_reward,
    args=GRPOConfig(arguments.output, max_steps=arguments.max_steps, **settings),
    train_dataset=load_dataset("openai/gsm8k", "main", split="train").map(add_prompt),
)
trainer.train()
trainer.save_model()

rewards = [row["reward"] for row in trainer.state.log_history if row.get("reward") is not None]
print(f"trainer: {type(trainer).__name__}")
first, last, steps = rewards[0], rewards[-1], trainer.args.logging_steps
print(f"mean reward: {first:.2f} in the first {steps} steps, {last:.2f} in the last {steps}")
