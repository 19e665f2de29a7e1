"""Arithmetic: a chat model learns to add two numbers, rewarded by a function in this script.

What it shows: a dataset of chat prompts, a reward function of your own, and LoRA, in the shortest
complete script.

Run:      pip install 'rapid-rl[peft]'
          python arithmetic.py
Prints:   mean reward: X in the first batch, Y in the last
Takes:    24 steps took 13 minutes on two busy cores of an AMD EPYC, from a mean reward of 0.13 in
          the first batch to 0.92 in the last; not measured on a GPU yet
Smoke:    python arithmetic.py --smoke, 10 seconds of CPU time (AMD EPYC)
"""

import argparse
import re
from typing import Any

from datasets import Dataset
from peft import LoraConfig

from rapid import RapidConfig, RapidTrainer


def answer_is_last_number(completions, answer, **_):
    """Reward a completion whose last number is the answer."""
    texts = [messages[-1]["content"] for messages in completions]
    last_numbers = [(re.findall(r"-?\d+", text) or [None])[-1] for text in texts]
    return [float(number == total) for number, total in zip(last_numbers, answer, strict=True)]


def build_row(a: int, b: int) -> dict:
    """Return a row of the dataset: a chat prompt, and the answer for the reward function."""
    question = f"What is {a} + {b}? Answer with a number only."
    return {"prompt": [{"role": "user", "content": question}], "answer": str(a + b)}


parser = argparse.ArgumentParser(description="Teach a chat model to add.")
parser.add_argument("--model", default="HuggingFaceTB/SmolLM2-135M-Instruct")
parser.add_argument("--output", default="output/arithmetic")
parser.add_argument("--max_steps", type=int, default=24)
parser.add_argument("--smoke", action="store_true", help="a tiny model and a few steps")
arguments = parser.parse_args()

settings: dict[str, Any] = {
    "H": 4,  # optimizer steps per inference batch
    "n_step": 32,  # completions per optimizer step: 8 for each of 4 questions
    "num_generations": 8,
    "max_completion_length": 12,
    "learning_rate": 3e-4,
    "logging_steps": 4,
    "gradient_checkpointing": False,
}
if arguments.smoke:
    from smoke import shrink

    settings = shrink(arguments, settings)

trainer = RapidTrainer(
    arguments.model,
    answer_is_last_number,
    args=RapidConfig(arguments.output, max_steps=arguments.max_steps, **settings),
    train_dataset=Dataset.from_list([build_row(a, b) for a in range(1, 10) for b in range(1, 10)]),
    peft_config=LoraConfig(target_modules="all-linear", r=16, lora_alpha=32),
)
trainer.train()
trainer.save_model()
rewards = [row["reward"] for row in trainer.state.log_history if row.get("reward") is not None]
print(f"mean reward: {rewards[0]:.2f} in the first batch, {rewards[-1]:.2f} in the last")
