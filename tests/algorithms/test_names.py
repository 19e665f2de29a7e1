"""Names of algorithms and their variants: what they say, and what is refused."""

import re

import pytest

from rapid.algorithms import ALGORITHMS
from rapid.algorithms.names import build_pattern, parse
from rapid.config import specs
from rapid.config.params import BadParams, load


@pytest.mark.parametrize(
    ("name", "kind", "h"),
    [("sft", "sft", 1), ("naive-grpo", "naive-grpo", 1), ("dr-grpo-H16", "dr-grpo", 16)],
)
def test_a_plain_name(name, kind, h):
    found = parse(name)
    assert (found.algorithm.name, found.H, found.plain) == (kind, h, name)
    assert found.changes.model_dump(exclude_none=True) == {}


def test_a_variant():
    found = parse("rapid-H4,eta=1.5,weighted=false,group_size=2,n_step=16")
    assert (found.plain, found.H) == ("rapid-H4", 4)
    changes = {"eta": 1.5, "weighted": False, "group_size": 2, "n_step": 16}
    assert found.changes.model_dump(exclude_none=True) == changes
    assert found.changes.subset(["n_step", "epochs"]) == {"n_step": 16}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ppo", "one of sft, grpo"),
        ("rapid", "one of sft"),
        ("rapid-H0", "one of sft"),
        ("rapid-H4,", "one of sft"),
        ("rapid-H4,../x=1", "one of sft"),
        ("rapid-H4,etta=1", "etta"),
        ("rapid-H4,eta=0", "greater than 0"),
        ("rapid-H4,eta=inf", "eta as a finite number"),
        ("rapid-H4,eta=1,eta=2", "each change once"),
        ("pg,learning_rate=2.5e-4,epochs=2", "pg,learning_rate=0.00025,epochs=2, without an exp"),
        ("pg,learning_rate=1e4", "pg,learning_rate=10000, without an exponent"),
        ("rapid-H4,eta=-1", "eta as greater than 0"),
        ("rapid-H4,clip=often", "clip as 'advantage'"),
        ("rapid-H4,group_size=1", "group_size as greater than or equal to 2"),
        ("pg,eta=1", "pg without eta, which only RAPID has"),
        ("pg,epsilon=1", "epsilon, which only GRPO and naive GRPO and Dr. GRPO have"),
        ("sft,epochs=2", "no variants"),
    ],
)
def test_what_means_nothing_is_refused(name, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        parse(name)


def test_the_names_that_are_offered_mean_something():
    with pytest.raises(ValueError, match="one of") as raised:
        parse("ppo")
    said = re.fullmatch(r"one of (.*) \(any H from 1; (.*) take one too\); .*", str(raised.value))
    offered, taking = (re.split(r", | or ", names) for names in said.groups())
    assert sorted(parse(name).algorithm.name for name in offered) == sorted(ALGORITHMS)
    assert {parse(f"{name}-H2").algorithm.name for name in [*taking, "rapid"]} == {
        name for name in ALGORITHMS if re.fullmatch(build_pattern(), f"{name}-H2")
    }


def test_params_name_the_place_of_a_bad_variant(values):
    values["studies"]["compared"]["eta"]["algorithms"][1] = "rapid-H16,eta=0"
    with pytest.raises(
        BadParams, match=r"studies\.compared\.eta\.algorithms\.1: 'rapid-H16,eta=0'"
    ):
        load(values)


def test_a_variants_batches_are_checked(values):
    values["studies"]["compared"]["eta"]["algorithms"][1] = "rapid-H16,group_size=8"
    with pytest.raises(BadParams, match=r"n_step: 4 is not allowed.*group size of rapid-H16,gr"):
        load(values)


def test_a_variant_changes_its_run_and_nothing_else(values):
    params = load(values)
    run = specs.Run(benchmark="math", model="tiny-qwen2", algorithm="rapid-H4", seed=1)
    plain = specs.train_spec(params, run).model_dump()
    name = "rapid-H4,eta=1.0,n_step=8,group_size=8,epochs=3,snapshots=5"
    assert re.fullmatch(build_pattern(), name)
    found = specs.train_spec(params, run.model_copy(update={"algorithm": name})).model_dump()
    plain["run"]["algorithm"] = name
    plain["objective"]["eta"] = 1.0
    plain["training"] |= {"group_size": 8, "epochs": 3}
    assert found == plain | {"n_step": 8, "snapshots": 5}


def test_a_variant_that_only_looks_keeps_its_spec(values):
    params = load(values)
    run = specs.Run(benchmark="math", model="tiny-qwen2", algorithm="rapid-H4", seed=1)
    other = run.model_copy(update={"algorithm": "rapid-H4,skip_zero_groups=false"})
    plain, found = (specs.train_spec(params, one).model_dump() for one in (run, other))
    assert found == plain | {"run": other.model_dump()}
    assert parse(other.algorithm).changes.subset(["skip_zero_groups"]) == {
        "skip_zero_groups": False
    }
