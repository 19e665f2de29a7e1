"""The sizes of models: made by the pipeline, in a config.json, or known by a published name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rapid.artifacts.files import BadInput
from rapid.config.params import Params
from rapid.config.sections import EmbeddedModel

FILE = Path(__file__).with_name("models.yaml")
HEAD_DIM, WIDENING = 64, 3  # of models that the pipeline makes: heads, feed-forward layers


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
    def query_width(self) -> int:
        """Numbers in the queries of one token in one layer."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Numbers in the keys of one token in one layer, and in its values."""
        return self.kv_heads * self.head_dim

    @property
    def multiplied(self) -> int:
        """Weights that every token is multiplied with: an embedding is looked up."""
        attention = 2 * self.hidden * (self.query_width + self.kv_width)
        block = attention + 3 * self.hidden * self.intermediate
        return self.layers * block + self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All weights, without norms and biases, which are below a thousandth."""
        return self.multiplied + (0 if self.tied else self.vocabulary * self.hidden)

    def key_value_bytes(self, size: int) -> int:
        """Return bytes of one token's keys and values in all layers, `size` bytes a number."""
        return 2 * self.layers * self.kv_width * size


@cache
def published() -> dict[str, Shape]:
    """Return the shapes of known published models, by name without owner."""
    models = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return {name: from_values(config, FILE) for name, config in models.items()}


def from_config(path: Path) -> Shape:
    """Return the shape in a config.json as transformers writes it.

    Raises:
        BadInput: it is no JSON, or lacks a size.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON: {error}") from None
    return from_values(values, path)


def from_values(values: dict[str, Any], source: Path | str) -> Shape:
    """Return the shape in the values of a configuration, which are from `source`.

    Raises:
        BadInput: they lack a size.
    """
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
        raise BadInput(
            f"{source}: {missing.args[0]} is missing: not the config.json of a text model"
        ) from None


def load_shapes(params: Params, configs: Mapping[str, Path]) -> dict[str, Shape]:
    """Return the shape of each model in params.yaml.

    Args:
        configs: config.json of models whose sources do not tell their shape.

    Raises:
        BadInput: the shape of one is not known.
    """
    if unknown := [name for name in configs if name not in params.models]:
        raise BadInput(
            f"--config {unknown[0]}=...: no such model; models: {', '.join(params.models)}"
        )
    return {
        name: from_config(configs[name]) if name in configs else find_shape(name, params)
        for name in params.models
    }


def find_shape(name: str, params: Params) -> Shape:
    """Return the shape of a model that the pipeline makes, or that its source tells.

    Raises:
        BadInput: its source does not; the message says how to give it.
    """
    model, vocabulary = params.models[name], params.pretraining.vocabulary
    if isinstance(model, EmbeddedModel):
        hidden, heads = model.hidden, model.hidden // HEAD_DIM
        sizes = (model.layers, hidden, WIDENING * hidden, heads, heads, HEAD_DIM, vocabulary)
        return Shape(*sizes, tied=True)
    config = Path(model.source) / "config.json"
    if config.is_file():
        return from_config(config)
    repository = model.source.rstrip("/").split("/")[-1].lower()
    for published_name, shape in published().items():
        if published_name.lower() in repository:
            return shape
    raise BadInput(
        f"models.{name}: the size of {model.source!r} is not known; known: "
        f"{', '.join(published())}, and folders with a config.json. Give its config.json: "
        f"--config {name}=FILE"
    )
