"""What jobs ask of a machine, and parameters that no machine can satisfy."""

import copy

import pytest

from rapid.config import specs
from rapid.config.params import BadParams, load
from rapid.config.specs import Run
from rapid.resources import requests as resources


def params(values, **compute):
    values = copy.deepcopy(values)
    values["compute"] |= compute
    values["naive_grpo"]["sampling_batch"] = 4
    values["sft"]["micro_batch"] = 1
    del values["studies"]
    for sizes in values["benchmarks"].values():
        sizes["n_step"] = 8
    return load(values)


def spec(values, algorithm, benchmark="math", **compute):
    run = Run(benchmark=benchmark, model="tiny-qwen2", algorithm=algorithm, seed=1)
    return specs.train_spec(params(values, **compute), run)


GPU = {"device": "gpu", "processes": 4, "threads": 4, "sampler": "vllm"}


def test_a_training_job_has_a_gpu_and_threads_for_each_process(values):
    assert resources.gpus(spec(values, "pg", processes=2)) == 0
    job = spec(values, "rapid-H4", **GPU)
    assert (resources.gpus(job), resources.cores(job), resources.minutes(job)) == (4, 16, 1_440)


def test_evaluation_has_one_gpu_and_distillation_those_of_the_teacher(values):
    values["models"]["teacher"] = {"source": "org/name", "tensor_parallel": 4}
    of = params(values, **GPU)
    run = Run(benchmark="math", model="tiny-qwen2", algorithm="pg", seed=1)
    assert resources.gpus(specs.evaluate_spec(of, run)) == 1
    assert resources.cores(specs.evaluate_spec(of, run)) == 4
    assert resources.gpus(specs.distill_spec(of, "math")) == 4


def test_jobs_that_are_made_on_cpus_ask_for_no_gpu(values):
    of = params(values, **GPU)
    jobs = specs.model_spec(of, "tiny-qwen2"), specs.prepare_spec(of, "math"), None
    assert [(resources.gpus(job), resources.cores(job)) for job in jobs] == [(0, 4), (0, 1), (0, 1)]
    assert {resources.minutes(job) for job in jobs} == {60}


def test_naive_grpo_samples_on_one_gpu_and_trains_on_as_many_as_divide_n_step(values):
    job = spec(values, "naive-grpo", **GPU)
    assert specs.uses_vllm_server(job)
    assert job.compute.processes == 2  # of the three that are left
    assert resources.gpus(job) == 3
    assert not specs.uses_vllm_server(spec(values, "naive-grpo", sampler="vllm"))


def test_over_nodes_each_has_its_share(values):
    values["tables"]["main"]["algorithms"] = ["pg"]
    job = spec(values, "rapid-H4", **GPU, nodes=2)
    assert resources.gpus(job) == 4
    assert resources.gpus_a_node(job) == 2
    assert resources.cores(job) == 8
    assert resources.memory_mb(job) == resources.memory_mb(spec(values, "rapid-H4", **GPU)) / 2


@pytest.mark.parametrize(
    "compute, message",
    [
        ({"processes": 3, "nodes": 2}, "compute.processes: 3 .* a multiple of compute.nodes, 2"),
        ({"processes": 16}, "compute.processes: 16 .* a divisor of 8, the completions"),
        (GPU | {"nodes": 2}, "compute.nodes: 2 .* 1 with naive-grpo, whose vLLM server"),
    ],
)
def test_processes_that_cannot_share_the_work_are_refused(values, compute, message):
    values["sft"]["batch"] = 48
    with pytest.raises(BadParams, match=message):
        params(values, **compute)
