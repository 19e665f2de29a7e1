"""The peak memory of one training loop, in a fresh process: what `measure` starts, it runs.

The peak is the kernel's VmHWM. `ru_maxrss` would do for a process that nobody big has started: a
child inherits its parent's.
"""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from performance.models import Workload, read_problems, smollm2, tiny
from performance.trainers import Setting

RATE = 0.1


def measure(
    side: str, workload: Workload, problems: Path | None, setting: Setting, batches: int
) -> dict[str, float]:
    """Peak resident size, 1e6 bytes: `peak`, and `before` training, with the model loaded.

    Args:
        problems: the file that the workload's problems come from, if it is one.
        batches: inference batches to train on.
    """
    order = json.dumps(
        {
            "side": side,
            "name": workload.name,
            "model": str(workload.model),
            "problems": problems and str(problems),
            "count": len(workload.problems),
            "setting": asdict(setting),
            "batches": batches,
        }
    )
    command = [sys.executable, "-m", "performance.memory", order]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"a training loop failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def resident_mb(field: str) -> float:
    """VmRSS, or the highest that it has been, VmHWM; 1e6 bytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) * 1024 / 1e6


def train(order: dict) -> dict[str, float]:
    """What `measure` asks for, of this process."""
    from performance.rewards import SolveRate
    from performance.trainers import SIDES

    problems = read_problems(order["problems"] and Path(order["problems"]), order["count"])
    model = Path(order["model"])
    workload = tiny(model, problems) if order["name"] == "tiny" else smollm2(problems)
    setting = Setting(**order["setting"])
    steps = order["batches"] * setting.H
    trainer = SIDES[order["side"]](workload, setting, SolveRate(RATE), max_steps=steps)
    before = resident_mb("VmRSS")
    trainer.train()
    return {"peak": resident_mb("VmHWM"), "before": before}


if __name__ == "__main__":
    from rapid.training.trl import without_vllm

    without_vllm()
    print(json.dumps(train(json.loads(sys.argv[1]))))
