"""Read the files that jobs left: a damaged one is an error that names it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError, field_validator

from rapid.artifacts.files import BadRow, Record, read_jsonl
from rapid.artifacts.manifests import MANIFEST
from rapid.grading.policy import Grading

R = TypeVar("R", bound=Record)


class BadRun(ValueError):
    """A file of a run is there but is not what its place says. The message begins with its path."""


class Manifest(Record):
    """The manifest of a job, as far as reports need it."""

    stage: str
    spec: dict[str, Any]
    versions: dict[str, str] = Field(default_factory=dict)
    hardware: str = ""
    commit: str = ""
    accepted: list[dict] = Field(default_factory=list, description="by `rapid accept`")

    @field_validator("spec")
    @classmethod
    def _has_a_policy(cls, spec: dict) -> dict:
        Grading.model_validate(spec.get("grading", {}))
        return spec

    @property
    def benchmark(self) -> str:
        """The benchmark of the job."""
        return self.value("run.benchmark") or self.value("benchmark") or ""

    @property
    def algorithm(self) -> str:
        """The algorithm of the job's run; "" where it is of none."""
        return self.value("run.algorithm") or ""

    @property
    def waived(self) -> set[str]:
        """The walls that the job was allowed to do without, as keys of params.yaml's grading."""
        return set(Grading.model_validate(self.spec.get("grading", {})).given_up)

    def value(self, key: str) -> Any:
        """Return spec["a"]["b"] for "a.b", or `None` where there is no such entry."""
        found: Any = self.spec
        for part in key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found


def read(path: Path, record: type[R]) -> R | None:
    """Return the record in a JSON file, or `None` where there is no such file.

    Raises:
        BadRun: the file is damaged.
    """
    try:
        return record.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the document"
        raise BadRun(f"{path}: {field}: {first['msg']}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadRun(f"{path}: cannot be read: {error}") from None


def read_rows(path: Path, record: type[R]) -> list[R]:
    """Return the rows of a JSON-lines file, none where there is no such file.

    Raises:
        BadRun: the file is damaged.
    """
    try:
        return list(read_jsonl(path, record)) if path.is_file() else []
    except (BadRow, OSError) as error:
        raise BadRun(str(error)) from None


def read_manifests(root: Path, folders: Iterable[str]) -> dict[str, Manifest]:
    """Return the manifests in these folders by path, of those that are there.

    Raises:
        BadRun: a manifest is damaged.
    """
    found = {f"{folder}/{MANIFEST}": read(root / folder / MANIFEST, Manifest) for folder in folders}
    return {path: manifest for path, manifest in found.items() if manifest}
