"""Reads the manifests of jobs, and checks that each job read the files that exist now."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import field_validator

from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import MANIFEST, Manifest
from rapid.config.jobs import build_plan
from rapid.config.params import Params
from rapid.freshness import list_differences
from rapid.grading.permissions import GradingPermissions


class JobManifest(Manifest):
    """The manifest of a job, with access to the values in its spec, which are parameters."""

    @field_validator("spec")
    @classmethod
    def _check_permissions(cls, spec: dict) -> dict:
        GradingPermissions.model_validate(spec.get("grading", {}))
        return spec

    @property
    def sandbox_permissions(self) -> set[str]:
        """The permissions that the job had to grade without a layer of the sandbox.

        They are names of keys of the section `grading`, such as unsafe_lean.
        """
        return set(GradingPermissions.model_validate(self.spec.get("grading", {})).unsafe_settings)

    def get_spec_value(self, key: str, default: Any = None) -> Any:
        """Return spec["a"]["b"] for the key "a.b", or the default if there is no such entry."""
        value: Any = self.spec
        for part in key.split("."):
            value = value.get(part, default) if isinstance(value, dict) else default
        return value


def read_manifests(root: Path, folders: Iterable[str]) -> dict[str, JobManifest]:
    """Return the manifests in these folders by path; folders without a manifest are left out.

    Raises:
        BadFile: a manifest is damaged.
    """
    manifests = {f"{folder}/{MANIFEST}": JobManifest.read(root / folder) for folder in folders}
    return {path: manifest for path, manifest in manifests.items() if manifest}


def check_input_versions(manifests: dict[str, JobManifest]) -> None:
    """Check that each job read the versions of files that other jobs' manifests have as outputs.

    Raises:
        BadFile: a job read another version of a file.
    """
    outputs = {
        path: digest for manifest in manifests.values() for path, digest in manifest.outputs.items()
    }
    for name, manifest in manifests.items():
        for path, digest in manifest.inputs.items():
            if outputs.get(path, digest) != digest:
                raise BadFile(
                    f"{name}: its job read another version of {path}. Delete {name} and "
                    "run snakemake again: it repeats the job"
                )


def find_other_parameters(params: Params, report: str, root: Path) -> dict[str, list[str]]:
    """Return how the parameters of finished jobs that a report needs differ from the present ones.

    Args:
        report: the name of the report's job (`rapid.artifacts.layout`).
        root: the folder that contains the jobs' folders.

    Returns:
        The differences by the folder of each job that has any.
    """
    *jobs, _ = build_plan(params, root).list_with_inputs(report)  # without the report
    differences = {}
    for job in jobs:
        if manifest := JobManifest.read(root / job.folder):
            same_code = {"code": manifest.spec.get("code", "")}
            new = job.spec.model_dump(mode="json") | same_code
            differences[job.folder] = list_differences(manifest.spec, new)
    return {folder: changes for folder, changes in differences.items() if changes}


def find_parameters_that_differ_between_seeds(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Return how the parameters of jobs differ from those of the same job with the first seed.

    Parameters that change results by rounding at most (`compute`) are not compared.

    Args:
        frame: runs (rows of `reports.collect.collect_runs`), of which those with folders are read.

    Returns:
        The differences by the folder of each job that has any.
    """
    differences = {}
    for _, runs in frame.groupby(["benchmark", "model", "algorithm"], sort=False):
        for column in ("folder", "evaluation"):
            manifests = {folder: JobManifest.read(folder) for folder in runs[column]}
            compared = {
                folder: {**manifest.spec, "run": None, "code": None, "compute": None}
                for folder, manifest in manifests.items()
                if manifest
            }
            first = next(iter(compared.values()), None)
            differences |= {name: list_differences(first, spec) for name, spec in compared.items()}
    return {folder: changes for folder, changes in differences.items() if changes}
