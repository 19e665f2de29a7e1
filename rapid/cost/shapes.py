"""The sizes of models, from params.yaml, from a config.json, or from model_sizes.yaml by name."""

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

FILE = Path(__file__).with_name("model_sizes.yaml")
# Models that the pipeline makes: width of a head, and ratio of a feed-forward layer's width to the
# model's.
HEAD_DIM, WIDENING = 64, 3


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder with grouped-query attention and gated feed-forward layers."""

    layers: int
    hidden: int
    intermediate: int  # width of a feed-forward layer
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool  # whether input embedding and output head are one matrix

    @property
    def query_width(self) -> int:
        """The width of all queries of one token in one layer."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """The width of all keys of one token in one layer; its values have the same."""
        return self.kv_heads * self.head_dim

    @property
    def multiplied(self) -> int:
        """The number of weights that every token is multiplied with.

        The input embedding is not counted, because it is only looked up.
        """
        # Four matrices: queries and output, keys and values. A gated feed-forward layer has three.
        attention = 2 * self.hidden * (self.query_width + self.kv_width)
        block = attention + 3 * self.hidden * self.intermediate
        return self.layers * block + self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """The number of weights, without norms and biases, which are below a thousandth of all."""
        return self.multiplied + (0 if self.tied else self.vocabulary * self.hidden)

    def key_value_bytes(self, size: int) -> int:
        """Return the bytes of a token's keys and values in all layers, with `size` per number."""
        return 2 * self.layers * self.kv_width * size


@cache
def published() -> dict[str, Shape]:
    """Return the shapes of the published models in model_sizes.yaml, by name without owner."""
    models = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return {name: from_values(config, FILE) for name, config in models.items()}


def from_config(path: Path) -> Shape:
    """Return the shape in a config.json of transformers.

    Raises:
        BadInput: the file is not JSON, or lacks a size.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON: {error}") from None
    return from_values(values, path)


def from_values(values: dict[str, Any], source: Path | str) -> Shape:
    """Return the shape in the values of a config.json.

    Args:
        source: where the values come from, for error messages.

    Raises:
        BadInput: a size is missing.
    """
    values = values.get("text_config", values)  # of a model for text and images
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
        configs: model name -> its config.json, for models whose shape is not known otherwise.

    Raises:
        BadInput: the shape of a model is not known, or `configs` names an unknown model.
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
    """Return the shape of a model in params.yaml.

    It follows from the parameters of a model that the pipeline makes. For a published model it is
    in the config.json of its folder, or in model_sizes.yaml.

    Raises:
        BadInput: the shape is not known; the message says how to give it.
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
