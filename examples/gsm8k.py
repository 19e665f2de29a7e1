"""Grade-school mathematics: GSM8K from the hub, with answers graded by math_reward.

What it shows: `map` makes prompts from a dataset on the hub. math_reward reads the column `answer`,
in which the answer follows ####. Answers are compared by value and not as text: \\boxed{1/2} is
correct if the answer is 0.5.

Run:      pip install 'rapid-rl[graders]'
          python gsm8k.py
Prints:   mean reward: X in the first batch, Y in the last
Takes:    not measured yet. It is meant for one GPU
Smoke:    python gsm8k.py --smoke, 12 seconds of CPU time (AMD EPYC)
"""

import argparse
from typing import Any

from datasets import load_dataset

from rapid import RapidConfig, RapidTrainer
from rapid.rewards import math_reward

INSTRUCTION = "Reason step by step, and put the final answer into \\boxed{}."

parser = argparse.ArgumentParser(description="Train on GSM8K with math_reward.")
parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
parser.add_argument("--output", default="output/gsm8k")
parser.add_argument("--max_steps", type=int, default=400)
parser.add_argument("--smoke", action="store_true", help="a tiny model and a few steps")
arguments = parser.parse_args()

settings: dict[str, Any] = {
    "H": 8,  # optimizer steps per inference batch
    "n_step": 32,  # completions per optimizer step
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

rewards = [row["reward"] for row in trainer.state.log_history if row.get("reward") is not None]
print(f"mean reward: {rewards[0]:.2f} in the first batch, {rewards[-1]:.2f} in the last")
