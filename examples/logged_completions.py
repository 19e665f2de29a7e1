"""Training on logged completions, which another policy sampled, with their log-probs.

What it shows: TRL's `rollout_func` returns logged completions, so that nothing is sampled. With
`use_rollout_logps=True` RAPID computes its importance weights from the logged log-probs, which are
those of the behaviour policy. Each line of the log has a prompt and `num_generations` completions:

    {"prompt": "1 + 2 =", "completion_ids": [[12, 1], ...], "logprobs": [[-0.7, -0.1], ...],
     "reward": [1.0, ...]}

The prompt is the whole text that the policy read, with the chat template. Completions are token
ids, because their text might be tokenized differently. Log-probs are natural logarithms.

Run:      pip install rapid-rl
          python logged_completions.py --log completions.jsonl
Prints:   mean importance weight: X in the first step, Y in the last
Takes:    not measured yet
Smoke:    python logged_completions.py --smoke, 11 seconds of CPU time (AMD EPYC)
"""

import argparse
from typing import Any

from datasets import Dataset

from rapid import RapidConfig, RapidTrainer

parser = argparse.ArgumentParser(description="Train on logged completions.")
parser.add_argument("--log", help="file of completions, in JSON lines; needed without --smoke")
parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
parser.add_argument("--output", default="output/logged_completions")
parser.add_argument("--max_steps", type=int, default=100)
parser.add_argument("--smoke", action="store_true", help="a tiny model and a few steps")
arguments = parser.parse_args()

settings: dict[str, Any] = {
    "use_rollout_logps": True,
    "H": 1,  # optimizer steps per batch that is read from the log
    "n_step": 32,  # completions per optimizer step
    "num_generations": 8,  # completions per prompt, as in the log
    "temperature": 1.0,  # at which the log's completions were sampled and log-probs computed
    "learning_rate": 1e-6,
    "logging_steps": 1,
    "gradient_checkpointing": False,
}
if arguments.smoke:
    from smoke import shrink, write_log

    settings = shrink(arguments, settings)
    arguments.log = write_log(arguments.model, settings["num_generations"])

logged_groups = Dataset.from_json(arguments.log)
group_by_prompt = {group["prompt"]: group for group in logged_groups}


def read_completions(prompts: list[str], trainer: RapidTrainer) -> dict[str, list]:
    """Return for prompt i of all processes its logged completion i % num_generations."""
    first_index, size = trainer.accelerator.process_index * len(prompts), trainer.num_generations
    batch = {"prompt_ids": [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]}
    for column in ("completion_ids", "logprobs", "reward"):
        groups = [group_by_prompt[prompt][column] for prompt in prompts]
        batch[column] = [group[i % size] for i, group in enumerate(groups, first_index)]
    return batch


def get_logged_reward(reward, **_):
    return reward


trainer = RapidTrainer(
    arguments.model,
    get_logged_reward,
    args=RapidConfig(arguments.output, max_steps=arguments.max_steps, **settings),
    train_dataset=logged_groups.select_columns("prompt"),
    rollout_func=read_completions,
)
trainer.train()
trainer.save_model()

weights = [row["rapid/weight"] for row in trainer.state.log_history if "rapid/weight" in row]
print(f"mean importance weight: {weights[0]:.2f} in the first step, {weights[-1]:.2f} in the last")
