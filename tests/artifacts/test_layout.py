"""Snakemake's rules, `make clean` and .gitignore use the folders that `rapid.artifacts.layout` declares."""

import re

import pytest

from rapid.artifacts.layout import EXPERIMENTS, RESULT_FOLDERS, STAGES, parse_folder
from rapid.cli import STAGE_COMMANDS
from tests.conftest import ROOT

RULE = re.compile(
    r"^(?:use rule \w+ as|rule) (\w+)(?: with)?:\n(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL
)


def read_rules() -> dict[str, str]:
    """Return the body of each rule by its name."""
    files = [ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")]
    return {name: body for file in files for name, body in RULE.findall(file.read_text())}


RULES = read_rules()


def read_outputs(rule: str) -> list[str]:
    """Return the files that a rule's section `output` names, without the experiment's folder."""
    section = re.search(r"^    output:\n(.*?)^    \w", RULES[rule], re.MULTILINE | re.DOTALL)[1]
    return re.findall(r'"\{(?:root|PLAN\.root)\}(.*?)"', section)


@pytest.mark.parametrize("rule", STAGES)
def test_rule_writes_the_results_of_its_stage_into_its_folder(rule):
    stage = STAGES[rule]
    if stage.phase == "report":
        assert all(path.startswith(stage.folder) for path in read_outputs(rule))
    else:
        names = ("manifest.json", *stage.results)
        assert read_outputs(rule) == [f"{stage.folder}/{name}" for name in names]


@pytest.mark.parametrize("rule", [rule for rule in STAGES if STAGES[rule].phase != "report"])
def test_rule_runs_its_subcommand_with_the_options_of_its_stage(rule):
    shell = " ".join(re.findall(r'"(.*)"', RULES[rule].partition("shell:")[2]))
    assert f"python -m rapid {rule} --spec {{params.spec:q}} " in shell
    assert shell.endswith(" --out {params.folder} > {log} 2>&1")
    options = dict(re.findall(r"--(\w+) \{params\.(\w+)\}", shell))
    (declared,) = (stage.paths for stage in STAGE_COMMANDS if stage.name == rule)
    assert options.pop("out") == "folder"
    assert options.keys() == {path.removesuffix("...") for path in declared} - {"out"}
    for option, parameter in options.items():
        assert parameter == option
        assert f'{option}=get_input_manifests("{rule}", "{option}"),' in RULES[rule]
        assert f'{option}=get_paths("{rule}", "{option}"),' in RULES[rule]


@pytest.mark.parametrize("rule", [rule for rule in STAGES if STAGES[rule].phase != "report"])
def test_rule_has_the_priority_and_the_resources_of_its_job(rule):
    for line in (
        f'priority: get_priority("{rule}")',
        f'threads: get_threads("{rule}")',
        f'**get_resources("{rule}"),',
        f'spec=get_spec("{rule}"),',
    ):
        assert f"    {line}\n" in RULES[rule]


def test_every_rule_has_a_docstring():
    assert not [rule for rule, body in RULES.items() if not body.lstrip().startswith('"""')]


def test_results_are_ignored_by_git_and_deleted_by_make_clean():
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {f"/{folder}/" for folder in RESULT_FOLDERS} | {f"/{EXPERIMENTS}/*/"} <= {*ignored}
    clean = (ROOT / "Makefile").read_text().partition("\nclean:")[2]
    deleted = re.findall(r"[\w/.*-]+", clean)
    assert {*RESULT_FOLDERS, f"{EXPERIMENTS}/*/"} <= {*deleted}
    reports = {path.strip("/") for path in ignored if path.startswith("/reports/")}
    assert reports <= {*deleted}


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("models/tokenizer", {}),
        ("models/teacher", {"model": "teacher"}),
        (
            "runs/math/m/rapid-H4,eta=1/seed2",
            {"benchmark": "math", "model": "m", "algorithm": "rapid-H4,eta=1", "seed": "2"},
        ),
    ],
)
def test_folder_is_parsed_into_the_names_of_its_job(folder, names):
    template, parsed = parse_folder(folder)
    assert parsed == names and template.format(**parsed) == folder


def test_a_folder_of_no_job_is_an_error():
    with pytest.raises(ValueError, match="is not the folder of a job"):
        parse_folder("runs/math/m/pg")
