"""Names of algorithms and variants are parsed, and invalid ones are refused."""

import re

import pytest

from rapid.algorithms import ALGORITHMS
from rapid.algorithms.variant_names import build_name_pattern, parse_variant_name
from rapid.config import specs
from rapid.config.params import BadParams, load


@pytest.mark.parametrize(
    ("name", "algorithm", "H"),
    [("sft", "sft", 1), ("naive-grpo", "naive-grpo", 1), ("dr-grpo-H16", "dr-grpo", 16)],
)
def test_plain_name_is_parsed(name, algorithm, H):
    parsed = parse_variant_name(name)
    assert (parsed.algorithm.name, parsed.H, parsed.base_name) == (algorithm, H, name)
    assert parsed.changes.model_dump(exclude_none=True) == {}


def test_variant_is_parsed():
    parsed = parse_variant_name("rapid-H4,eta=1.5,weighted=false,group_size=2,n_step=16")
    assert (parsed.base_name, parsed.H) == ("rapid-H4", 4)
    changes = {"eta": 1.5, "weighted": False, "group_size": 2, "n_step": 16}
    assert parsed.changes.model_dump(exclude_none=True) == changes
    assert parsed.changes.subset(["n_step", "epochs"]) == {"n_step": 16}


@pytest.mark.parametrize("name", ["rapid-H8", "grpo", "naive-grpo"])
def test_every_rl_algorithm_can_reuse_completions(values, name):
    """The spec of a run without `reuse` does not contain it."""

    def build_spec(algorithm, **training):
        params = load(values | {"training": values["training"] | training})
        run = {"benchmark": "math", "model": "tiny-qwen2", "algorithm": algorithm, "seed": 1}
        return specs.build_train_spec(params, specs.Run(**run))

    once, variant, by_section = (
        build_spec(name), build_spec(f"{name},reuse=2"), build_spec(name, reuse=2),
    )  # fmt: skip
    assert variant.training == by_section.training != once.training
    assert (once.training.reuse, variant.training.reuse) == (1, 2)
    assert "reuse" not in once.model_dump()["training"]
    assert build_spec("sft", reuse=2) == build_spec("sft")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rapid-H4,reuse=0", "reuse must be greater than 0"),
        ("sft,reuse=2", "no variants"),
        ("ppo", "must be one of sft, grpo"),
        ("rapid", "one of sft"),
        ("rapid-H0", "one of sft"),
        ("rapid-H4,", "one of sft"),
        ("rapid-H4,../x=1", "one of sft"),
        ("rapid-H4,etta=1", "rapid-H4 has no parameter etta; variants of it may change eta, "),
        ("rapid-H4,eta=0", "eta must be greater than 0"),
        ("rapid-H4,eta=inf", "eta must be a finite number"),
        ("rapid-H4,eta=1,eta=2", "changed twice: eta"),
        (
            "pg,learning_rate=2.5e-4,epochs=2",
            "numbers have no exponent; write pg,learning_rate=0.00025,epochs=2",
        ),
        ("pg,learning_rate=1e4", "write pg,learning_rate=10000"),
        ("rapid-H4,eta=-1", "eta must be greater than 0"),
        ("rapid-H4,clip=often", "clip must be 'advantage'"),
        ("rapid-H4,group_size=1", "group_size must be greater than or equal to 2"),
        (
            "rapid-H4,n_step=3000000000",
            "n_step: '3000000000' is invalid: its absolute value must be at most 2147483647",
        ),
        ("pg,eta=1", "eta is a parameter of RAPID only"),
        ("pg,epsilon=1", "epsilon is a parameter of GRPO, naive GRPO and Dr. GRPO only"),
        ("sft,epochs=2", "sft has no variants"),
    ],
)
def test_invalid_names_are_refused(name, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_variant_name(name)


def test_suggested_names_are_valid():
    with pytest.raises(ValueError, match="one of") as error:
        parse_variant_name("ppo")
    match = re.fullmatch(
        r"must be one of (.*) \(any H from 1; (.*) can have an H too\); .*", str(error.value)
    )
    offered, names_with_h = (re.split(r", | or ", names) for names in match.groups())
    assert sorted(parse_variant_name(name).algorithm.name for name in offered) == sorted(ALGORITHMS)
    assert {
        parse_variant_name(f"{name}-H2").algorithm.name for name in [*names_with_h, "rapid"]
    } == {name for name in ALGORITHMS if re.fullmatch(build_name_pattern(), f"{name}-H2")}


def test_error_names_place_of_bad_variant_in_params(values):
    values["studies"]["compared"]["eta"]["algorithms"][1] = "rapid-H16,eta=0"
    with pytest.raises(
        BadParams, match=r"studies\.compared\.eta\.algorithms\.1: 'rapid-H16,eta=0'"
    ):
        load(values)


def test_batches_of_variants_are_checked(values):
    values["studies"]["compared"]["eta"]["algorithms"][1] = "rapid-H16,group_size=8"
    with pytest.raises(BadParams, match=r"n_step: 4 is invalid.*group size of rapid-H16,gr"):
        load(values)


def test_variant_changes_only_its_own_spec(values):
    params = load(values)
    run = specs.Run(benchmark="math", model="tiny-qwen2", algorithm="rapid-H4", seed=1)
    plain = specs.build_train_spec(params, run).model_dump()
    name = "rapid-H4,eta=1.0,n_step=8,group_size=8,epochs=3,snapshots=5"
    assert re.fullmatch(build_name_pattern(), name)
    spec = specs.build_train_spec(params, run.model_copy(update={"algorithm": name})).model_dump()
    plain["run"]["algorithm"] = name
    plain["objective"]["eta"] = 1.0
    plain["training"] |= {"group_size": 8, "epochs": 3}
    assert spec == plain | {"n_step": 8, "snapshots": 5}


def test_disabling_skipping_does_not_change_spec(values):
    params = load(values)
    run = specs.Run(benchmark="math", model="tiny-qwen2", algorithm="rapid-H4", seed=1)
    variant_run = run.model_copy(update={"algorithm": "rapid-H4,skip_zero_groups=false"})
    spec, variant_spec = (
        specs.build_train_spec(params, planned_run).model_dump()
        for planned_run in (run, variant_run)
    )
    assert variant_spec == spec | {"run": variant_run.model_dump()}
    assert parse_variant_name(variant_run.algorithm).changes.subset(["skip_zero_groups"]) == {
        "skip_zero_groups": False
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("eta=3", "must begin with an algorithm; write quotes"),
        ("rapid-H8, eta=3", "must have no spaces; write rapid-H8,eta=3"),
    ],
)
def test_a_name_without_quotes_or_with_spaces_is_explained(name, message):
    with pytest.raises(ValueError, match=message):
        parse_variant_name(name)
