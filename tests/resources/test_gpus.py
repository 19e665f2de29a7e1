"""Which of the GPUs that NVML lists torch can use; torch is simulated in the child process."""

import pytest

from rapid.artifacts.files import BadInput
from rapid.resources import requests
from rapid.resources.gpus import explain_unusable_gpus

TOO_OLD = "The NVIDIA driver on your system is too old (found version 12040)."
REFUSE = "raise RuntimeError({!r})"
TORCH = """
from types import SimpleNamespace

def init():
    {init}

version = SimpleNamespace(cuda={cuda!r})
cuda = SimpleNamespace(init=init, device_count=lambda: {count})
{code}
"""


@pytest.fixture
def simulate_torch(tmp_path, monkeypatch):
    """Return a function that writes a module `torch`, which child processes import.

    Its arguments are the version of CUDA, the number of GPUs, the code of `torch.cuda.init`, and
    further code of the module.
    """
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def simulate(cuda="13.0", count=4, init="pass", code=""):
        text = TORCH.format(cuda=cuda, count=count, init=init, code=code)
        (tmp_path / "torch.py").write_text(text)

    return simulate


def test_gpus_that_torch_can_use_are_accepted(simulate_torch):
    simulate_torch()
    assert explain_unusable_gpus(4) == ""


@pytest.mark.parametrize(
    ("settings", "problem", "advice"),
    [
        (
            {"cuda": None, "init": REFUSE.format("Torch not compiled with CUDA enabled")},
            "torch can use 0 of 4 GPU(s): Torch not compiled with CUDA enabled",
            "Install torch for GPUs: `GPU=1 make setup`",
        ),
        (  # `device_count` counts the GPUs of any driver
            {"init": REFUSE.format(f"{TOO_OLD} Please update your GPU driver, or install ...")},
            f"torch can use 0 of 4 GPU(s): {TOO_OLD.rstrip('.')}",
            "update the NVIDIA driver",
        ),
        ({"count": 3}, "torch can use 3 of 4 GPU(s)", "update the NVIDIA driver"),
    ],
)
def test_unusable_gpus_are_explained(simulate_torch, settings, problem, advice):
    simulate_torch(**settings)
    message = explain_unusable_gpus(4)
    assert message.startswith(f"{problem}. ")
    assert message.endswith(advice)


def test_a_torch_that_cannot_be_imported_is_explained(simulate_torch):
    simulate_torch(code="raise ImportError('libcudart.so.13: no such file')")
    assert "0 of 1 GPU(s): ImportError: libcudart.so.13" in explain_unusable_gpus(1)


def test_a_job_does_not_start_on_gpus_that_torch_cannot_use(simulate_torch, monkeypatch):
    """Otherwise it would compute on CPU cores, and keep the GPUs from others."""
    simulate_torch(init=REFUSE.format(TOO_OLD))
    monkeypatch.setattr(requests, "lease_cores", lambda *_: [0])
    monkeypatch.setattr(requests, "lease_gpus", lambda count: ["0"] * count)
    monkeypatch.setattr(requests, "count_gpus_per_node", lambda _: 2)
    with pytest.raises(BadInput, match=r"compute.device: gpu: torch can use 0 of 2 .*too old"):
        requests.lease_resources(None)
