"""params.yaml: errors for invalid values, merging of files, and the runs that a change reaches."""

import re
from pathlib import Path

import pytest
import yaml
from snakemake.cli import parse_config

from rapid.benchmarks import BENCHMARKS
from rapid.config import specs
from rapid.config.jobs import Plan
from rapid.config.params import BadParams, load, load_config_files, read
from rapid.config.sources import order_keys

ROOT = Path(__file__).parents[2]
ALL_BUT_SFT = "all but sft"


def set_key(values: dict, key: str, value) -> None:
    """Set a value by its dotted key."""
    *path, last = key.split(".")
    for part in path:
        values = values[part]
    values[last] = value


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("rapid.eta", 0, "greater than 0"),
        ("rapid.clip", "never", "'advantage', 'both' or 'nowhere'"),
        ("sft.top_p", 1.5, "less than or equal to 1"),
        ("compute.threads", "two", "valid integer"),
        ("tables.main.algorithms", ["ppo"], "must be one of sft, grpo, "),
        ("tables.main.seeds", [], "must have at least 1 item\n"),
        ("tables.main.seeds", 3, "must be a list, in brackets\n"),
        ("benchmarks", 3, "must be a section, with keys and values\n"),
        ("tables.main.model", "gpt", "must be one of the models tiny-qwen2, "),
        ("teacher", "nobody", "must be one of the models tiny-qwen2, "),
        ("benchmarks.math.n_step", 6, "a multiple of 4, the group size of grpo"),
        (
            "benchmarks.math.train",
            12,
            "at least 16, the number of prompts in an inference batch of rapid-",
        ),
        ("benchmarks.mbpp_plus.pass_at", [1, 16], "at most 8, which is evaluation.samples"),
        ("training.micro_batch", 0, "greater than 0"),
        ("naive_grpo.sampling_batch", 0, "greater than 0"),
        ("models.teacher.hidden", 100, "multiple of 64"),
        ("models.teacher.error_rate", [0.5, 0.5], "valid number"),
        ("training.start", "nobody", "; or write base for the model before training"),
        ("training.start", "rapid", "must be one of sft, "),
        (
            "training.start",
            "rapid-H4",
            "rapid-H4 is one of the algorithms that are compared on mbpp_plus; must be base, sft or",
        ),
    ],
)
def test_invalid_value_is_refused_with_key_value_and_reason(values, key, value, reason):
    set_key(values, key, value)
    with pytest.raises(BadParams) as refusal:
        load(values)
    message = str(refusal.value)
    assert key in message and reason in f"{message}\n"
    invalid = (
        8
        if value == {8: 8}
        else value[0]
        if value and isinstance(value, list) and value != [1, 16]
        else value
    )
    assert repr(invalid) in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("training.learning_rte", 1e-4, "is not a key; the keys are learning_rate, epochs, "),
        ("training.learning_rte", 1e-4, "; did you mean learning_rate?"),
        ("logging.zzz", 1, "logging.zzz: is not a key; the keys are report_to"),
        (
            "rapid.etta",
            2.0,
            "is not a key; the keys are eta, clip, baseline, weighted, baseline_scale, ",
        ),
        ("models.tiny-qwen2.layer", 2, "; did you mean layers?"),
        ("benchmarks.mbpp", {}, "; did you mean mbpp_plus?"),
        ("compute.device", "GPU", "; did you mean gpu?"),
        ("teacher", "tiny-qwen", "; did you mean tiny-qwen2?"),
        ("tables.main.algorithms", ["rapd-H8"], "; did you mean rapid-H8?"),
        ("tables.main.algorithms", ["rapid"], "; did you mean rapid-H4?"),
        ("tables.main.algorithms", ["GRPO"], "; did you mean grpo?"),
        ("tables.main.algorithms", ["rapid-H4,etta=1"], "; did you mean eta?"),
        ("experiment.benchmark", "maths", "; did you mean math?"),
    ],
)
def test_unknown_name_is_refused_with_a_suggestion(values, key, value, message):
    set_key(values, key, value)
    with pytest.raises(BadParams) as refusal:
        load(values)
    assert key in str(refusal.value) and message in str(refusal.value)


def test_left_out_benchmark_is_learnt_by_no_model(values):
    values["models"]["teacher"]["error_rate"] = {"mbpp_plus": 0.1, "math": 0.2, "minif2f": 0.3}
    values["benchmarks"]["minif2f"] = None
    teacher = load(values).models["teacher"]
    assert teacher.benchmarks == [*teacher.error_rate] == ["mbpp_plus", "math"]
    assert Plan(load(values)).jobs  # each job has a spec
    del values["benchmarks"]["minif2f"]
    with pytest.raises(BadParams, match=r"models\.tiny-qwen2\.benchmarks: 'minif2f' is invalid"):
        assert Plan(load(values)).jobs


def test_sft_is_refused_as_a_start_where_it_cannot_run(values):
    for table in ("main", "families"):
        values["tables"][table]["algorithms"] = ["pg"]
    values["compute"]["processes"], values["sft"]["batch"] = 2, 15
    load(values)
    values["training"]["start"] = "sft"
    with pytest.raises(BadParams, match=r"sft\.batch: 15 is invalid: must be a multiple of 2"):
        load(values)


def test_demonstrations_are_refused_for_a_benchmark_that_cannot_make_them(values, monkeypatch):
    values["sft"]["demonstrations"] = 8
    values["benchmarks"]["math"]["source"] = "hub"
    load(values)
    monkeypatch.setattr(type(BENCHMARKS["math"]), "draw", None)
    with pytest.raises(BadParams, match=r"sft\.demonstrations: 8 is invalid: must be 0, because"):
        load(values)


@pytest.mark.parametrize(("source", "other_source"), [("hub", "embedded"), ("embedded", "hub")])
def test_source_is_refused_for_a_benchmark_without_it(values, monkeypatch, source, other_source):
    values["benchmarks"]["math"] |= {"source": source}
    load(values)
    attribute = {"hub": "hub", "embedded": "draw"}[source]
    monkeypatch.setattr(type(BENCHMARKS["math"]), attribute, None)
    message = (
        rf"math\.source: '{source}' is invalid: math has no {source} problems; write "
        f"{other_source}, a file or a folder"
    )
    with pytest.raises(BadParams, match=message):
        load(values)
    spec = {"benchmark": "math", "data_seed": 0, "train": 1, "test": 1, "demonstrations": 0}
    with pytest.raises(ValueError, match=message.removeprefix(r"math\.")):
        specs.PrepareSpec(**spec, source=source)


def test_missing_key_is_named(values):
    del values["rapid"]["eta"]
    with pytest.raises(BadParams, match=r"rapid\.eta: is missing"):
        load(values)


def test_template_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("data_seed: 1\n__use_yte__: true\n")
    with pytest.raises(BadParams, match=r"a\.yaml:2: __use_yte__: templates are not supported"):
        read(tmp_path / "a.yaml")


def test_a_file_named_json_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "JSON").write_text("data_seed: 1\n")
    assert read("JSON") == {"data_seed": 1}


def test_damaged_json_text_is_refused():
    with pytest.raises(BadParams, match="JSON text: cannot be parsed: "):
        read("{")


def test_later_files_override_earlier_ones(tmp_path):
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"x": {"y": 1, "z": 2}, "l": [1, 2]}))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"x": {"y": 3}, "l": [4]}))
    assert read(tmp_path / "a.yaml", tmp_path / "b.yaml") == {"x": {"y": 3, "z": 2}, "l": [4]}


def test_every_model_is_evaluated_before_training(values):
    params = load(values)
    bases = {
        run
        for run in specs.add_base_runs(params, specs.list_table_runs(params))
        if run.algorithm == specs.BASE
    }
    assert {(run.benchmark, run.model, run.seed) for run in bases} == {
        (run.benchmark, run.model, run.seed) for run in specs.list_table_runs(params)
    }


@pytest.mark.parametrize(
    ("key", "value", "reached"),
    [
        ("rapid.eta", 3.0, {"rapid-H2", "rapid-H4", "rapid-H8", "rapid-H16"}),
        ("naive_grpo.sampling_batch", 8, {"naive-grpo"}),
        ("sft.epochs", 5, {"sft"}),
        ("grpo.beta", 0.1, {"grpo", "naive-grpo"}),
        ("benchmarks.math.n_step", 8, ALL_BUT_SFT),
        ("benchmarks.math.timeout", 7.0, ALL_BUT_SFT),
        ("evaluation.temperature", 0.5, set()),
        ("benchmarks.math.test", 16, set()),
    ],
)
def test_changed_value_changes_the_specs_of_the_runs_that_use_it(values, key, value, reached):
    before = load(values)
    set_key(values, key, value)
    after, runs = load(values), specs.list_table_runs(before)
    changed = [
        run
        for run in runs
        if specs.build_train_spec(before, run) != specs.build_train_spec(after, run)
    ]
    if reached is ALL_BUT_SFT:
        reached = {run.algorithm for run in runs if run.benchmark == "math"} - {"sft"}
        assert {run.benchmark for run in changed} == {"math"}
    assert {run.algorithm for run in changed} == reached


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("tables.main.algorithms", ["rapid-H4", "rapid-H4,eta=2"]),
        ("tables.main.algorithms", ["rapid-H4,eta=1.0", "rapid-H4,eta=1"]),
        ("tables.families.algorithms", ["pg", "pg-H1"]),
        (
            "studies.compared.baseline.algorithms",
            ["pg,epochs=2,snapshots=7", "pg,snapshots=7,epochs=2"],
        ),
    ],
)
def test_two_names_of_equal_runs_are_refused(values, key, names):
    values["studies"]["compared"]["baseline"] = {"benchmark": "math", "algorithms": names}
    values["studies"]["hypotheses"] = {}
    set_key(values, key, names)
    with pytest.raises(BadParams) as error:
        load(values)
    assert str(error.value).endswith(
        f"{key}: {names[1]!r} is invalid: has the same parameters as {names[0]}; "
        "remove one of the two"
    )


def test_variants_that_differ_on_one_benchmark_may_be_compared(values):
    values["benchmarks"]["math"]["n_step"] = 8
    values["benchmarks"]["mbpp_plus"]["n_step"] = 16
    values["tables"]["main"]["algorithms"] = ["pg", "pg,n_step=8"]
    load(values)


def test_a_value_of_the_command_line_is_not_located_in_a_file(values, tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(values))
    values["rapid"]["eta"] = -1
    with pytest.raises(BadParams, match=r"^--config: rapid\.eta: -1 is invalid"):
        load(values, path)


def test_keys_have_the_order_of_the_files_however_snakemake_merged_them(tmp_path):
    """Snakemake puts an overlay's benchmark first if params.yaml is not among its --configfile."""
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("benchmarks: {math: {train: 32}}")
    files = ROOT / "params.yaml", overlay
    merged = read(*files)
    benchmarks = merged["benchmarks"]
    config = merged | {"benchmarks": {"math": benchmarks["math"], **benchmarks}}
    config["rapid"] = config["rapid"] | {"eta": 3.0}  # of --config
    ordered = order_keys(config, *files)
    assert ordered == config
    assert [*ordered["benchmarks"]] == ["mbpp_plus", "math", "minif2f"] != [*config["benchmarks"]]


def test_values_of_a_nested_config_argument_are_texts():
    """Of 'x={a: 12, b: null}' Snakemake makes {"a": "12", "b": "null"}."""
    argument = "training={micro_batch: 12, learning_rate: 1.0e-5, trust_sampler: null}"
    entry = parse_config([argument])["training"]
    assert (entry["micro_batch"], entry["trust_sampler"]) == ("12", "null")
    path = ROOT / "params.yaml"
    values = read(path)
    values["training"] |= entry
    training = load(order_keys(values, path), path).training
    assert (training.micro_batch, training.learning_rate) == (12, 1e-5)
    assert training.trust_sampler is None


def test_a_number_is_no_key(values):
    values["rapid"][8] = 8
    with pytest.raises(BadParams, match=r"rapid\.8: 8 is invalid: a key must be a text"):
        load(values)


def test_nan_is_located_in_its_file(tmp_path):
    """It is not equal to itself, so it seemed to be a value of the command line."""
    file = tmp_path / "overlay.yaml"
    file.write_text("training: {learning_rate: .nan}\n")
    with pytest.raises(BadParams, match=r"overlay\.yaml:1: training\.learning_rate: nan"):
        load(read(ROOT / "params.yaml", file), ROOT / "params.yaml", file)


def test_an_invalid_variant_is_located_by_the_list_that_has_it(values):
    values["tables"]["main"]["algorithms"].append("rapid-H8,n_step=6")
    key = "tables.main.algorithms"
    with pytest.raises(BadParams, match=f"{key}: 'rapid-H8,n_step=6' is invalid: its n_step must"):
        load(values)


def test_snapshots_need_completions_for_the_first_pass_at_k(values):
    values["evaluation"]["snapshot_samples"] = 2
    assert load(values).evaluation.effective_snapshot_samples == 2  # for pass@1; pass@8 needs 8
    values["benchmarks"]["mbpp_plus"]["pass_at"] = [4, 8]
    with pytest.raises(BadParams, match=r"at most 2, which is evaluation\.snapshot_samples"):
        load(values)


def test_null_is_written_as_in_yaml(values):
    values["rapid"]["eta"] = None
    with pytest.raises(BadParams, match=r"rapid\.eta: null is invalid"):
        load(values)


def test_a_model_removed_with_its_benchmark_is_explained(values):
    for name, model in values["models"].items():
        model["benchmarks"] = ["mbpp_plus"] if name == "tiny-qwen2-wide" else ["math"]
        model["error_rate"] = 0.1
    values["benchmarks"]["mbpp_plus"] = None
    values["tables"]["families"]["models"] = ["tiny-qwen2-wide"]
    message = (
        "'tiny-qwen2-wide' is invalid: it is removed, because all its benchmarks are set to null"
    )
    with pytest.raises(BadParams, match=message):
        load(values)


def test_the_small_experiment_of_the_page_on_extending_has_one_benchmark(values, tmp_path):
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(re.search(r"```yaml\n(name: small-math\n.*?)```", page, re.DOTALL)[1])
    params = load_config_files([ROOT / "params.yaml", overlay])
    assert list(params.benchmarks) == ["math"]
    assert {run.algorithm for run in specs.list_table_runs(params)} == {
        "sft", "grpo", "rapid-H8,eta=3", "rapid-H8",
    }  # fmt: skip
