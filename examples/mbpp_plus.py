"""Programs: MBPP+ from the hub, with completions run against its tests by code_reward.

What it shows: the columns of MBPP+ work as they are. Completions run in a sandbox, without files,
network or the expected outputs. A task of your own needs one column, `tests`: a list of texts such
as "assert f(1) == 2".

Run:      pip install 'rapid-rl[graders]'
          python mbpp_plus.py
Prints:   mean reward: X in the first batch, Y in the last
Takes:    not measured yet. It is meant for one GPU
Smoke:    python mbpp_plus.py --smoke, 11 seconds of CPU time (AMD EPYC)
"""

import argparse
from typing import Any

from datasets import load_dataset

from rapid import RapidConfig, RapidTrainer
from rapid.rewards import code_reward

INSTRUCTION = "Answer with the complete function in one ```python block. It has to pass this test:"

parser = argparse.ArgumentParser(description="Train on MBPP+ with code_reward.")
parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
parser.add_argument("--output", default="output/mbpp_plus")
parser.add_argument("--max_steps", type=int, default=200)
parser.add_argument("--smoke", action="store_true", help="a tiny model, made rows, a few steps")
arguments = parser.parse_args()

settings: dict[str, Any] = {
    "H": 8,  # optimizer steps for each batch that is sampled
    "n_step": 16,  # completions of an optimizer step
    "num_generations": 8,  # completions of a task
    "micro_batch_size": "auto",  # completions of a forward and backward pass: what memory allows
    "max_completion_length": 400,
    "learning_rate": 1e-6,
    "logging_steps": 8,
    "gradient_checkpointing": False,
    "grading_workers": 4,  # grade completions while others are still being sampled
}
if arguments.smoke:
    from smoke import load_dataset, shrink

    settings = shrink(arguments, settings)


def ask(row: dict) -> dict:
    task = f"{row['prompt']}\n\n{INSTRUCTION}\n\n{row['test_list'][0]}"
    return {"prompt": [{"role": "user", "content": task}]}


trainer = RapidTrainer(
    arguments.model,
    code_reward,
    args=RapidConfig(arguments.output, max_steps=arguments.max_steps, **settings),
    train_dataset=load_dataset("evalplus/mbppplus", split="test").map(ask),  # its only split
)
trainer.train()
trainer.save_model()

rewards = [row["reward"] for row in trainer.state.log_history if row.get("reward") is not None]
print(f"mean reward: {rewards[0]:.2f} in the first batch, {rewards[-1]:.2f} in the last")
