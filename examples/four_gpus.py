"""Four GPUs: data parallel training by `accelerate launch`, with DeepSpeed's ZeRO-2.

What it shows: the script is the same as for one GPU. accelerate starts it four times. The processes
share each batch: n_step counts the completions of all four, and the gradient is that of one GPU, up
to rounding. Completions differ from those on one GPU, because each process has a seed of its own.

Run:      pip install 'rapid-rl[graders]' deepspeed
          accelerate launch --num_processes 4 --use_deepspeed --zero_stage 2 four_gpus.py
Prints:   processes: N (DEEPSPEED)
          mean reward: X in the first batch, Y in the last
Takes:    not measured yet. It is meant for four GPUs
Smoke:    run the second line with DS_ACCELERATOR=cpu, --num_processes 2 and --smoke: 23 seconds of
          CPU time (AMD EPYC), and 75 the first time, when DeepSpeed compiles
"""

import argparse
from typing import Any

from datasets import load_dataset

from rapid import RapidConfig, RapidTrainer
from rapid.rewards import math_reward

INSTRUCTION = "Reason step by step, and put the final answer into \\boxed{}."

parser = argparse.ArgumentParser(description="Train on GSM8K with several processes.")
parser.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
parser.add_argument("--output", default="output/four_gpus")
parser.add_argument("--max_steps", type=int, default=400)
parser.add_argument("--smoke", action="store_true", help="a tiny model and a few steps")
arguments = parser.parse_args()

settings: dict[str, Any] = {
    "H": 8,  # optimizer steps per inference batch
    "n_step": 64,  # completions per optimizer step, over all processes
    "num_generations": 8,  # completions per question
    "micro_batch_size": "auto",  # the largest micro-batch that fits into memory
    "max_completion_length": 300,
    "learning_rate": 1e-6,
    "logging_steps": 8,
    "gradient_checkpointing": False,
}
if arguments.smoke:
    from smoke import load_dataset, shrink

    settings = shrink(arguments, settings)


def add_prompt(row: dict) -> dict:
    return {"prompt": [{"role": "user", "content": f"{row['question']}\n\n{INSTRUCTION}"}]}


trainer = RapidTrainer(
    arguments.model,
    math_reward,
    args=RapidConfig(arguments.output, max_steps=arguments.max_steps, **settings),
    train_dataset=load_dataset("openai/gsm8k", "main", split="train").map(add_prompt),
)
trainer.train()
trainer.save_model()

if trainer.accelerator.is_main_process:
    rewards = [row["reward"] for row in trainer.state.log_history if row.get("reward") is not None]
    backend = trainer.accelerator.distributed_type.value
    print(f"processes: {trainer.accelerator.num_processes} ({backend})")
    print(f"mean reward: {rewards[0]:.2f} in the first batch, {rewards[-1]:.2f} in the last")
