"""Worker process of test_gpu.py: one trainer, on the visible GPUs.

    python -m tests.gpu.worker MODEL OUT '{"use_vllm": true, ...}'

Writes out/outcome.RANK.json.
"""

import json
import sys
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoTokenizer

from performance.rewards import SolveRateReward
from rapid import RapidConfig, RapidTrainer
from rapid.artifacts.manifests import describe_hardware


def compute_matrix_norms(model: torch.nn.Module) -> list[float]:
    """Return the norm of each weight matrix.

    Vectors are left out: eight steps of 1e-4 do not change a norm layer's weight of 1.0 in
    bfloat16, in which DeepSpeed holds the weights beside its float32 copy.
    """
    return [p.detach().float().norm().item() for p in model.parameters() if p.ndim > 1]


def main(model: Path, out: Path, settings: dict) -> None:
    settings = {
        "H": 4,
        "n_step": 16,
        "num_generations": 4,
        "micro_batch_size": 4,
        "max_completion_length": 64,
        "learning_rate": 1e-4,
        "max_steps": 8,
        "bf16": True,
        **settings,
    }
    config = RapidConfig(
        str(out / "trainer"), seed=1, logging_steps=1, report_to=[], save_strategy="no",
        gradient_checkpointing=False, disable_tqdm=True, **settings,
    )  # fmt: skip
    trainer = RapidTrainer(
        str(model),
        SolveRateReward(0.5),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": f"prompt {i}"} for i in range(32)]),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    )
    before = compute_matrix_norms(trainer.model)
    trainer.train()
    after = compute_matrix_norms(trainer.model)
    step, _, logp = trainer.last_pass
    rank = trainer.accelerator.process_index
    outcome = {
        "processes": trainer.accelerator.num_processes,
        "device": str(trainer.accelerator.device),
        "gpu": describe_hardware(),
        "kind": str(trainer.accelerator.distributed_type),
        "changed": sum(a != b for a, b in zip(before, after, strict=True)) / len(before),
        "log": [row for row in trainer.state.log_history if "loss" in row],
        "last_step": step,
        "finite": bool(torch.isfinite(logp).all()),
        "seconds": dict(trainer.clock.seconds),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
    }
    (out / f"outcome.{rank}.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
