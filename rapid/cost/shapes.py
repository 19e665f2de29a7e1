"""The sizes of models, from params.yaml, a config.json, or model_sizes.yaml."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rapid.artifacts.files import BadInput
from rapid.config.params import Params
from rapid.config.params_schema import EmbeddedModel
from rapid.embedded_models.architectures import get_sizes

PUBLISHED_SIZES = Path(__file__).with_name("model_sizes.yaml")


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
    tied_embeddings: bool  # whether input embedding and output head are one matrix

    @property
    def query_width(self) -> int:
        """The width of all queries of one token in one layer."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """The width of all keys of one token in one layer, which is also that of its values."""
        return self.kv_heads * self.head_dim

    @property
    def matmul_weights(self) -> int:
        """The number of weights by which every token is multiplied.

        The input embedding is not among them, because it is only looked up.
        """
        # Attention has four matrices: for queries, output, keys and values. A gated feed-forward
        # layer has three.
        attention = 2 * self.hidden * (self.query_width + self.kv_width)
        block = attention + 3 * self.hidden * self.intermediate
        return self.layers * block + self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """The number of weights. Norms and biases, less than a thousandth of all, are left out."""
        return self.matmul_weights + (0 if self.tied_embeddings else self.vocabulary * self.hidden)

    def count_key_value_bytes(self, size: int) -> int:
        """Return the bytes of a token's keys and values in all layers.

        Args:
            size: bytes of a number.
        """
        return 2 * self.layers * self.kv_width * size


@cache
def load_published_shapes() -> dict[str, Shape]:
    """Return the shapes of the published models in model_sizes.yaml, by name without owner."""
    models = yaml.safe_load(PUBLISHED_SIZES.read_text(encoding="utf-8"))
    return {name: parse_shape(config, PUBLISHED_SIZES) for name, config in models.items()}


def read_shape(path: Path) -> Shape:
    """Return the shape in a config.json of transformers.

    Raises:
        BadInput: the file is not JSON, or lacks a size.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON: {error}") from None
    return parse_shape(values, path)


def parse_shape(values: dict[str, Any], source: Path | str) -> Shape:
    """Return the shape in the values of a config.json.

    Args:
        source: where the values come from, for error messages.

    Raises:
        BadInput: a size is missing.
    """
    values = values.get("text_config", values)  # a model for text and images has a config for each
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
            tied_embeddings=values.get("tie_word_embeddings", True),
        )
    except KeyError as missing:
        raise BadInput(
            f"{source}: {missing.args[0]} is missing, so this is not the config.json of a text "
            "model"
        ) from None


def load_shapes(params: Params, configs: Mapping[str, Path]) -> dict[str, Shape]:
    """Return the shape of each model in params.yaml.

    Args:
        configs: config.json by model name, for models whose shape is not known otherwise.

    Raises:
        BadInput: the shape of a model is not known, or `configs` names an unknown model.
    """
    if unknown := [name for name in configs if name not in params.models]:
        raise BadInput(
            f"--config {unknown[0]}=...: no such model; the models are {', '.join(params.models)}"
        )
    return {
        name: read_shape(configs[name]) if name in configs else find_shape(name, params)
        for name in params.models
    }


def find_known_shapes(params: Params) -> dict[str, Shape]:
    """Return the shape of each model in params.yaml whose shape is known (`find_shape`)."""
    shapes = {}
    for name in params.models:
        with suppress(BadInput):
            shapes[name] = find_shape(name, params)
    return shapes


def find_shape(name: str, params: Params) -> Shape:
    """Return the shape of a model in params.yaml.

    The shape of an embedded model follows from params.yaml. The shape of a published model is in
    the config.json of its folder, or in model_sizes.yaml.

    Raises:
        BadInput: the shape is not known; the message says which option takes a config.json.
    """
    model = params.models[name]
    if isinstance(model, EmbeddedModel):
        return parse_shape(get_sizes(model, params.pretraining.vocabulary), name)
    config = Path(model.source) / "config.json"
    if config.is_file():
        return read_shape(config)
    # A part of the name suffices, so that Qwen2.5-0.5B is found for Qwen/Qwen2.5-0.5B-Instruct.
    repository = model.source.rstrip("/").split("/")[-1].lower()
    for published_name, shape in load_published_shapes().items():
        if published_name.lower() in repository:
            return shape
    raise BadInput(
        f"models.{name}: the size of {model.source!r} is not known. Known are "
        f"{', '.join(load_published_shapes())}, and folders with a config.json. Pass the model's "
        f"config.json: --config {name}=FILE"
    )
