"""Programs: MBPP+ from the hub, with code_reward, which runs completions on the tests of MBPP+.

What it shows: code_reward reads the columns of MBPP+. Completions run in a sandbox, without access
to files, the network or the expected outputs. Your own tasks need one column, `tests`, with a list
of assertions such as "assert f(1) == 2".

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
parser.add_argument("--smoke", action="store_true", help="a tiny model and a few steps")
arguments = parser.parse_args()

settings: dict[str, Any] = {
    "H": 8,  # optimizer steps per inference batch
    "n_step": 16,  # completions per optimizer step
    "num_generations": 8,  # completions per task
    "micro_batch_size": "auto",  # the largest micro-batch that fits into memory
    "max_completion_length": 400,
    "learning_rate": 1e-6,
    "logging_steps": 8,
    "gradient_checkpointing": False,
    "grading_workers": 12,  # threads that grade completions while others are sampled
}
if arguments.smoke:
    from smoke import load_dataset, shrink

    settings = shrink(arguments, settings)


def add_prompt(row: dict) -> dict:
    task = f"{row['prompt']}\n\n{INSTRUCTION}\n\n{row['test_list'][0]}"
    return {"prompt": [{"role": "user", "content": task}]}


trainer = RapidTrainer(
    arguments.model,
    code_reward,
    args=RapidConfig(arguments.output, max_steps=arguments.max_steps, **settings),
    train_dataset=load_dataset("evalplus/mbppplus", split="test").map(add_prompt),  # its only split
)
trainer.train()
trainer.save_model()

rewards = [row["reward"] for row in trainer.state.log_history if row.get("reward") is not None]
print(f"mean reward: {rewards[0]:.2f} in the first batch, {rewards[-1]:.2f} in the last")
