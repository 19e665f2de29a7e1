"""What the jobs wrote into their manifests: their parameters, the versions and the machine."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rapid.config.jobs import plan
from rapid.config.params import Params
from rapid.config.specs import evaluations, runs
from reports.collect import BadRun


@dataclass(frozen=True)
class Manifest:
    """One job's. `path` is below the root."""

    path: str
    stage: str
    benchmark: str
    algorithm: str
    spec: dict[str, Any]
    versions: dict[str, str]
    hardware: str
    commit: str

    def value(self, key: str) -> Any:
        """spec["a"]["b"] for "a.b"; `None` where there is no such thing."""
        found: Any = self.spec
        for part in key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found


def read(params: Params, root: Path) -> list[Manifest]:
    """The manifests of the distillations, trainings and evaluations that the tables need, of those
    that are there.

    Raises:
        BadRun: one is damaged.
    """
    folders = [f"distilled/{name}" for name in params.benchmarks]
    folders += [run.folder for run in runs(params)]
    folders += [run.evaluation for run in evaluations(params)]
    place = plan(params, root).folder
    found = (_read(root, f"{place(folder)}/manifest.json") for folder in folders)
    return [manifest for manifest in found if manifest is not None]


def _read(root: Path, path: str) -> Manifest | None:
    try:
        document = json.loads((root / path).read_text(encoding="utf-8"))
        spec = document["spec"]
        run = spec.get("run", {})
        return Manifest(
            path=path,
            stage=document["stage"],
            benchmark=run.get("benchmark") or spec["benchmark"],
            algorithm=run.get("algorithm", ""),
            spec=spec,
            versions=dict(document.get("versions", {})),
            hardware=document.get("hardware", ""),
            commit=document.get("commit", ""),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRun(f"{root / path}: not a manifest: {error!r}") from None


def distinct(values: Iterable[Any]) -> list[Any]:
    """Without `None` and repetition, in the order met; lists and objects too."""
    by_text = {json.dumps(value, sort_keys=True): value for value in values if value is not None}
    return list(by_text.values())
