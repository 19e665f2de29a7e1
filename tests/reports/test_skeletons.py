"""Skeletons of generated problems, which are generated again from the manifest of the data."""

import json

import pandas as pd
import pytest

from rapid.artifacts.files import BadFile
from rapid.config.jobs import build_plan
from rapid.config.specs import PrepareSpec
from rapid.stages.prepare import prepare
from reports.report_data import ReportData
from reports.skeletons import is_generated, regenerate_skeletons


def test_skeletons_belong_to_the_problems_of_the_run(params, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = build_plan(params).get_folder("data/math")
    spec = PrepareSpec(
        benchmark="math", source="embedded", data_seed=3, train=4, test=40, reserved=0,
        demonstrations=4,
    )  # fmt: skip
    prepare(spec, tmp_path / folder)
    manifest = tmp_path / folder / "manifest.json"
    document = json.loads(manifest.read_text())
    document["outputs"] = {
        f"{folder}/{path.rpartition('/')[2]}": digest
        for path, digest in document["outputs"].items()
    }
    manifest.write_text(json.dumps(document))
    data = ReportData(params, pd.DataFrame(), tmp_path)
    assert is_generated(data, "math")
    skeletons = regenerate_skeletons(data, "math")
    assert len(skeletons) == 40 > len(set(skeletons.values()))
    assert not any(set("123456789") & {*text} for text in skeletons.values())
    document["outputs"][f"{folder}/test.jsonl"] = "0" * 64
    manifest.write_text(json.dumps(document))
    with pytest.raises(
        BadFile, match=r"the generator of .* no longer makes the problems of this run"
    ):
        regenerate_skeletons(data, "math")


def test_problems_that_are_not_prepared_have_no_skeletons(params, tmp_path):
    assert not is_generated(ReportData(params, pd.DataFrame(), tmp_path), "math")
