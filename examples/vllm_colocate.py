"""Sampling by vLLM in the trainer's process, on the GPU that also trains.

What it shows: `use_vllm=True, vllm_mode="colocate"`, as in GRPOTrainer. vLLM's engine has the
precision and the weights of the policy. The share `vllm_gpu_memory_utilization` of the GPU's memory
is vLLM's, and micro-batches use the rest.

Run:      pip install 'rapid-rl[graders,vllm]'
          python vllm_colocate.py
Prints:   mean reward: X in the first batch, Y in the last
          seconds: X of sampling, Y of sending weights to vLLM
Takes:    not measured yet. It is meant for one GPU
Smoke:    python vllm_colocate.py --smoke, 39 seconds of CPU time (AMD EPYC) with vLLM's CPU build.
          Without vLLM it ends with an ImportError
"""

import argparse
from typing import Any

from datasets import load_dataset

from rapid import RapidConfig, RapidTrainer
from rapid.rewards import math_reward

INSTRUCTION = "Reason step by step, and put the final answer into \\boxed{}."

parser = argparse.ArgumentParser(description="Train on GSM8K, and sample with vLLM.")
parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct")
parser.add_argument("--output", default="output/vllm_colocate")
parser.add_argument("--max_steps", type=int, default=400)
parser.add_argument("--smoke", action="store_true", help="a tiny model and a few steps")
arguments = parser.parse_args()

settings: dict[str, Any] = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_gpu_memory_utilization": 0.3,
    "vllm_max_model_length": 1024,  # tokens of prompt and completion
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
sampling, sync = (trainer.clock.seconds[phase] for phase in ("sampling", "sync"))
print(f"seconds: {sampling:.1f} of sampling, {sync:.1f} of sending weights to vLLM")
