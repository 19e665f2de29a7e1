"""Proofs: theorems of Lean 4, with proofs checked by lean_reward.

What it shows: a row needs one column, `theorem` or `formal_statement`. A proof is correct if Lean's
kernel accepts it without `sorry` or new axioms. The script generates theorems that need only core
Lean, which the first call of lean_reward installs. `--dataset cat-searcher/minif2f-lean4` trains on
the theorems of miniF2F, which need Mathlib (see docs/benchmarks.md). This option has not been tried
yet.

Run:      pip install 'rapid-rl[graders]'
          python lean_proofs.py
Prints:   mean reward: X in the first batch, Y in the last
Takes:    not measured yet. It is meant for one GPU
Smoke:    python lean_proofs.py --smoke, 19 seconds of CPU time (AMD EPYC)
"""

import argparse
from typing import Any

from datasets import Dataset, load_dataset

from rapid import RapidConfig, RapidTrainer
from rapid.rewards import lean_reward

INSTRUCTION = "Prove this theorem in Lean 4, without sorry. Answer with one ```lean block."

parser = argparse.ArgumentParser(description="Train on theorems of Lean 4 with lean_reward.")
parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
parser.add_argument(
    "--dataset", help="a dataset on the hub with a column theorem or formal_statement"
)
parser.add_argument("--output", default="output/lean_proofs")
parser.add_argument("--max_steps", type=int, default=100)
parser.add_argument("--smoke", action="store_true", help="a tiny model and a few steps")
arguments = parser.parse_args()

settings: dict[str, Any] = {
    "H": 4,  # optimizer steps per inference batch
    "n_step": 32,  # completions per optimizer step
    "num_generations": 16,  # completions per theorem
    "micro_batch_size": "auto",  # the largest micro-batch that fits into memory
    "max_completion_length": 200,
    "learning_rate": 1e-6,
    "logging_steps": 4,
    "gradient_checkpointing": False,
}
if arguments.smoke:
    from smoke import load_dataset, shrink

    settings = shrink(arguments, settings)


def build_row(a: int, b: int) -> dict:
    """Return a row with this theorem: if ax + 1 = ab + 1, then x = b."""
    return {"theorem": f"theorem linear (x : Nat) (h : {a} * x + 1 = {a * b + 1}) : x = {b} := by"}


def add_prompt(row: dict) -> dict:
    theorem = row.get("theorem") or row["formal_statement"]
    return {"prompt": [{"role": "user", "content": f"{INSTRUCTION}\n\n{theorem}"}]}


if arguments.dataset:
    theorems = load_dataset(arguments.dataset, split="train")
else:
    theorems = Dataset.from_list([build_row(a, b) for a in range(2, 20) for b in range(20)])
trainer = RapidTrainer(
    arguments.model,
    lean_reward,
    args=RapidConfig(arguments.output, max_steps=arguments.max_steps, **settings),
    train_dataset=theorems.map(add_prompt),
)
trainer.train()
trainer.save_model()

rewards = [row["reward"] for row in trainer.state.log_history if row.get("reward") is not None]
print(f"mean reward: {rewards[0]:.2f} in the first batch, {rewards[-1]:.2f} in the last")
