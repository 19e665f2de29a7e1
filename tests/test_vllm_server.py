"""The vLLM server of a job is started and stopped. A fake server replaces vLLM, without a GPU."""

import itertools
import os
import signal
import sys
import time

import pytest

from rapid import vllm_server as server
from rapid.config.params import load
from rapid.config.specs import Run, build_train_spec
from tests.subprocesses import assert_gone, python, wait_for

# Answers /health after a while, and as vLLM starts a worker process, which it ends at SIGTERM.
FAKE_SERVER = """
import http.server, os, signal, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
signal.signal(signal.SIGTERM, lambda *_: worker.kill() or os._exit(0))
time.sleep(0.5)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
print(os.environ["CUDA_VISIBLE_DEVICES"], os.getpid(), worker.pid, file=open(sys.argv[2], "w"))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def spec(values, monkeypatch):
    values["naive_grpo"]["sampling_batch"] = 4
    values["sft"]["micro_batch"] = 4
    values["compute"] |= {"device": "gpu", "processes": 4, "sampler": "vllm"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    for name in (server.PORT_VARIABLE, server.GROUP_PORT_VARIABLE, "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    affinity, signal_handler = os.sched_getaffinity(0), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(server, "POLL_SECONDS", 0.1)
    yield build_train_spec(
        load(values), Run(benchmark="math", model="tiny-qwen2", algorithm="naive-grpo", seed=3)
    )
    os.sched_setaffinity(0, affinity)
    signal.signal(signal.SIGTERM, signal_handler)


@pytest.fixture
def fake_server_output(tmp_path, monkeypatch):
    """Replace vLLM by a fake server that writes its GPUs and the PIDs of server and worker here."""
    output = tmp_path / "output"
    fake_command = [sys.executable, "-c", FAKE_SERVER]
    monkeypatch.setattr(
        server, "build_serve_command", lambda _, port, __: [*fake_command, str(port), output]
    )
    return output


def test_the_server_has_the_last_gpu_and_the_trainer_the_others(spec, fake_server_output, tmp_path):
    with server.run_server(spec, tmp_path):
        gpus, *pids = fake_server_output.read_text().split()
        assert gpus == "7"
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,5"
        settings = server.build_trainer_settings()
        assert settings["vllm_mode"] == "server"
        assert settings["vllm_server_port"] != settings["vllm_group_port"]
    assert_gone(*map(int, pids))


def test_the_server_ends_with_a_job_that_fails(spec, fake_server_output, tmp_path):
    with pytest.raises(RuntimeError, match="training failed"), server.run_server(spec, tmp_path):
        raise RuntimeError("training failed")
    assert_gone(*map(int, fake_server_output.read_text().split()[1:]))


def test_the_server_and_its_workers_end_with_a_killed_job(spec, fake_server_output, tmp_path):
    def read_output() -> list[str]:
        return fake_server_output.read_text().split() if fake_server_output.exists() else []

    if not (job := os.fork()):
        with server.run_server(spec, tmp_path):
            time.sleep(600)
    wait_for(read_output)
    os.kill(job, signal.SIGKILL)
    os.waitpid(job, 0)
    assert_gone(*map(int, read_output()[1:]))


def test_a_server_that_ends_during_its_start_is_an_error(spec, tmp_path, monkeypatch):
    failing_command = [sys.executable, "-c", "raise SystemExit(3)"]
    monkeypatch.setattr(server, "build_serve_command", lambda *_: failing_command)
    with pytest.raises(server.ServerDied, match="status 3"), server.run_server(spec, tmp_path):
        pass


def test_the_command_of_the_server_has_the_options_that_trl_s_client_needs(spec, tmp_path):
    command = server.build_serve_command(tmp_path, 1234, spec)
    assert command[1:5] == ["-m", "vllm.entrypoints.cli.main", "serve", str(tmp_path)]
    pairs = dict(itertools.pairwise(command))
    assert pairs["--host"] == "127.0.0.1"
    assert (pairs["--port"], pairs["--dtype"], pairs["--seed"]) == ("1234", "float32", "3")
    assert pairs["--max-model-len"] == "-1"  # what fits in memory
    assert pairs["--weight-transfer-config"] == '{"backend": "nccl"}'


def test_trl_accepts_the_settings_for_the_trainer(monkeypatch, tmp_path):
    from trl import GRPOConfig

    monkeypatch.setenv(server.PORT_VARIABLE, "1234")
    monkeypatch.setenv(server.GROUP_PORT_VARIABLE, "1235")
    config = GRPOConfig(str(tmp_path), bf16=False, use_cpu=True, **server.build_trainer_settings())
    assert (config.vllm_server_port, config.vllm_group_port) == (1234, 1235)


@pytest.mark.slow
def test_vllm_accepts_the_options_of_the_server(spec, tmp_path):
    """vLLM's parser reads the options, without a GPU."""
    command = server.build_serve_command(tmp_path, 1234, spec)
    parse = (
        "import sys\n"
        "from vllm.entrypoints.launchers.cli_args import make_arg_parser\n"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
        "args = make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:])\n"
        "print(args.port, args.seed, args.host, args.max_model_len)"
    )
    parsed = python("-c", parse, *command[4:])
    assert parsed.stdout.splitlines()[-1:] == ["1234 3 127.0.0.1 -1"], parsed.stderr[-2000:]
