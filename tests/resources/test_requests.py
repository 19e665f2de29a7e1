"""Resources that jobs request, and parameters that are refused because processes cannot share work."""

import copy

import pytest

from rapid.config import specs
from rapid.config.params import BadParams, load
from rapid.config.specs import Run
from rapid.resources import requests


def load_params(values, **compute):
    values = copy.deepcopy(values)
    values["compute"] |= compute
    values["naive_grpo"]["sampling_batch"] = 4
    values["sft"]["micro_batch"] = 1
    del values["studies"]
    for sizes in values["benchmarks"].values():
        sizes["n_step"] = 8
    return load(values)


def make_train_spec(values, algorithm, benchmark="math", **compute):
    run = Run(benchmark=benchmark, model="tiny-qwen2", algorithm=algorithm, seed=1)
    return specs.build_train_spec(load_params(values, **compute), run)


GPU = {"device": "gpu", "processes": 4, "threads": 4, "sampler": "vllm"}


def test_a_training_job_requests_a_gpu_and_threads_for_each_process(values):
    assert requests.count_gpus(make_train_spec(values, "pg", processes=2)) == 0
    job = make_train_spec(values, "rapid-H4", **GPU)
    assert (requests.count_gpus(job), requests.count_cores(job)) == (4, 16)
    assert requests.get_time_limit_minutes(job) == 1_440


def test_evaluation_requests_one_gpu_and_distillation_those_of_the_teacher(values):
    values["models"]["teacher"] = {"source": "org/name", "tensor_parallel": 4}
    params = load_params(values, **GPU)
    run = Run(benchmark="math", model="tiny-qwen2", algorithm="pg", seed=1)
    assert requests.count_gpus(specs.build_evaluate_spec(params, run)) == 1
    assert requests.count_cores(specs.build_evaluate_spec(params, run)) == 4
    assert requests.count_gpus(specs.build_distill_spec(params, "math")) == 4


def test_jobs_on_cpus_request_no_gpu(values):
    params = load_params(values, **GPU)
    jobs = (
        specs.build_model_spec(params, "tiny-qwen2"),
        specs.build_prepare_spec(params, "math"),
        None,
    )
    assert [requests.count_gpus(job) for job in jobs] == [0, 0, 0]
    assert [requests.count_cores(job) for job in jobs] == [4, 1, 1]
    assert {requests.get_time_limit_minutes(job) for job in jobs} == {60}


def test_downloads_have_time_for_65_gigabytes_at_2_megabytes_a_second():
    spec = specs.FetchSpec(model="teacher", params={"source": "someone/something"})
    assert requests.get_time_limit_minutes(spec) * 60 * 2 > 65_000


def test_naive_grpo_samples_on_one_gpu_and_trains_on_as_many_as_divide_n_step(values):
    job = make_train_spec(values, "naive-grpo", **GPU)
    assert specs.uses_vllm_server(job)
    assert job.compute.processes == 2  # of the three that are left
    assert requests.count_gpus(job) == 3
    assert not specs.uses_vllm_server(make_train_spec(values, "naive-grpo", sampler="vllm"))


def test_the_resources_of_a_job_are_divided_among_its_nodes(values):
    values["tables"]["main"]["algorithms"] = ["pg"]
    job = make_train_spec(values, "rapid-H4", **GPU, nodes=2)
    assert requests.count_gpus(job) == 4
    assert requests.count_gpus_per_node(job) == 2
    assert requests.count_cores(job) == 8
    job_on_one_node = make_train_spec(values, "rapid-H4", **GPU)
    memory_mb = requests.get_memory_limit_mb(job_on_one_node)
    assert requests.get_memory_limit_mb(job) == memory_mb / 2


def test_each_grader_of_a_process_may_use_memory(values):
    limits = [
        requests.get_memory_limit_mb(make_train_spec(values, "rapid-H4", threads=threads))
        for threads in (1, 2, 4)
    ]
    assert limits == [6_000, 6_000 + 1_500, 6_000 + 3 * 1_500]
    assert requests.get_memory_limit_mb(make_train_spec(values, "sft", threads=4)) == 6_000


def test_algorithms_that_scale_steps_are_refused_with_several_processes(values):
    values["tables"]["main"]["algorithms"].append("vcpo-H4")
    load_params(values)
    with pytest.raises(BadParams, match=r"compute.processes: 2 .* must be 1 with vcpo-H4, .*Deep"):
        load_params(values, processes=2)


@pytest.mark.parametrize(
    "compute, message",
    [
        (
            {"processes": 3, "nodes": 2},
            "compute.processes: 3 .* must be a multiple of 2, which is compute.nodes",
        ),
        ({"processes": 16}, "compute.processes: 16 .* must divide 8, the number of completions"),
        (
            GPU | {"nodes": 2},
            "compute.nodes: 2 .* must be 1, because the vLLM server of naive-grpo",
        ),
    ],
)
def test_processes_that_cannot_share_the_work_are_refused(values, compute, message):
    values["sft"]["batch"] = 48
    with pytest.raises(BadParams, match=message):
        load_params(values, **compute)
