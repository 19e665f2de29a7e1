"""What test_vllm.py runs in a process of its own: vLLM changes torch, the environment and more for good.

Builds engines on the CPU, samples with them, and writes what it found as JSON.
"""

import json
import os
import socket
import sys
from functools import partial
from pathlib import Path

import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2ForCausalLM
from trl.generation.vllm_generation import VLLMGeneration

from rapid.training import vllm
from rapid.training.clock import PhaseClock
from tests.training.loops import build

SEED, TEMPERATURE = 3, 0.7  # SEED is not vLLM's own
# Longer than vLLM's blocks on CPUs, 128 tokens, for it to have something cached. Each is there twice.
PROMPTS = [[(7 * i + shift) % 250 + 2 for i in range(200)] for shift in (0, 0, 1, 1)]


def main(model: Path, folder: Path) -> None:
    with socket.socket() as taken:
        if not taken.connect_ex(("localhost", 29500)):
            print("another run has accelerate's default port")
        else:
            taken = socket.create_server(("localhost", 29500))
        found = {"trained": trained(model, folder)}
        taken.close()
    found["untied"] = untied(model, folder / "untied")
    (folder / "found.json").write_text(json.dumps(found))
