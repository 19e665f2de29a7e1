"""The manifests of jobs, with what reports ask of them, and whether one fits the other."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import field_validator

from rapid.artifacts import manifests
from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import MANIFEST
from rapid.grading.policy import Grading


class Manifest(manifests.Manifest):
    """The manifest of a job, with what reports ask of it."""

    @field_validator("spec")
    @classmethod
    def _has_a_policy(cls, spec: dict) -> dict:
        Grading.model_validate(spec.get("grading", {}))
        return spec

    @property
    def waived(self) -> set[str]:
        """The walls that the job was allowed to do without, as keys of params.yaml's grading."""
        return set(Grading.model_validate(self.spec.get("grading", {})).given_up)

    def value(self, key: str, default: Any = None) -> Any:
        """Return spec["a"]["b"] for "a.b", or the default where there is no such entry."""
        found: Any = self.spec
        for part in key.split("."):
            found = found.get(part, default) if isinstance(found, dict) else default
        return found


def read_manifests(root: Path, folders: Iterable[str]) -> dict[str, Manifest]:
    """Return the manifests in these folders by path, of those that are there.

    Raises:
        BadFile: a manifest is damaged.
    """
    found = {f"{folder}/{MANIFEST}": Manifest.read(root / folder) for folder in folders}
    return {path: manifest for path, manifest in found.items() if manifest}


def check_chain(found: dict[str, Manifest]) -> None:
    """Check that what jobs read is what the jobs before them wrote, by their manifests.

    Raises:
        BadFile: one of them read something else.
    """
    written = {path: digest for one in found.values() for path, digest in one.outputs.items()}
    for name, one in found.items():
        for path, digest in one.inputs.items():
            if written.get(path, digest) != digest:
                raise BadFile(
                    f"{name}: its job read another {path} than there is. Delete {name} and run "
                    "snakemake again: it repeats the job"
                )
