"""Fetching published models: their sources, and errors for unusable ones."""

import json
import shutil
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rapid.config.params import load
from rapid.config.specs import FetchSpec, build_model_spec, list_source_files
from rapid.stages.fetch import BadModel, fetch


def make_spec(source, **fields) -> FetchSpec:
    return FetchSpec(model="mine", params={"source": str(source), **fields})


def test_folder_is_copied_with_digests_and_replaces_an_earlier_copy(toy_model, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/old.safetensors").touch()
    fetch(make_spec(toy_model), tmp_path / "mine")
    manifest = json.loads((tmp_path / "mine/manifest.json").read_text())
    assert {*manifest["inputs"]} == {*list_source_files(make_spec(toy_model))}
    assert f"{toy_model}/model.safetensors" in manifest["inputs"]
    assert f"{tmp_path}/mine/model.safetensors" in manifest["outputs"]
    fetched = AutoModelForCausalLM.from_pretrained(tmp_path / "mine")
    assert manifest["parameters"] == fetched.num_parameters()
    assert not (tmp_path / "mine/old.safetensors").exists()


@pytest.mark.parametrize("source", ["mine", "mine/tiny.gguf", "./other/../mine"])
def test_source_inside_the_output_folder_is_refused_and_kept(tmp_path, monkeypatch, source):
    """The job empties its folder first, and users keep base models in models/NAME."""
    monkeypatch.chdir(tmp_path)
    for name in ("other", "mine"):
        (tmp_path / name).mkdir()
    files = [tmp_path / "mine" / name for name in ("model.safetensors", "tiny.gguf")]
    for file in files:
        file.touch()
    with pytest.raises(BadModel, match=r"models\.mine\.source: the source is in mine"):
        fetch(make_spec(source), Path("mine"))
    assert all(file.exists() for file in files)


def test_working_directory_is_not_emptied(toy_model, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(BadModel, match=r"the working directory is .*: write to another folder"):
        fetch(make_spec(toy_model), tmp_path)
    assert (tmp_path / "here").exists()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pypi:thing", "must be pypi:NAME==VERSION"),
        ("pypi:rapid no==1", "must be pypi:NAME==VERSION"),
        ("no/such.gguf", "the file no/such.gguf does not exist"),
        ("not a name", "neither an existing folder or file nor a name on the hub"),
        ("someone/something", "someone/something at main cannot be downloaded"),
    ],
)
def test_unusable_source_is_named(tmp_path, source, message):
    with pytest.raises(BadModel, match=r"models\.mine\.source") as refusal:
        fetch(make_spec(source), tmp_path / "mine")
    assert message in str(refusal.value)


@pytest.mark.parametrize("source", ["gone.gguf", "gone", "pypi:thing"])
def test_model_is_kept_if_its_new_source_cannot_be_used(toy_model, tmp_path, source):
    """A folder or file that was moved away looks like a new source, and the copy may be the last."""
    fetch(make_spec(toy_model), tmp_path / "mine")
    files = {path: path.read_bytes() for path in (tmp_path / "mine").iterdir()}
    source = source if ":" in source else tmp_path / source
    with pytest.raises(BadModel):
        fetch(make_spec(source), tmp_path / "mine")
    assert {path: path.read_bytes() for path in (tmp_path / "mine").iterdir()} == files
    assert [*tmp_path.iterdir()] == [tmp_path / "mine"]


def test_gguf_file_is_dequantised(tmp_path):
    """A tiny Llama, written as GGUF in float32, computes the same logits after fetching."""
    model, path = make_tiny_llama(), tmp_path / "tiny.gguf"
    write_gguf(model, path)
    fetch(make_spec(path), tmp_path / "mine")
    fetched = AutoModelForCausalLM.from_pretrained(tmp_path / "mine")
    ids = torch.arange(8)[None]
    torch.testing.assert_close(fetched(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-4)
    manifest = json.loads((tmp_path / "mine/manifest.json").read_text())
    assert manifest["weights"] == "de-quantised from tiny.gguf"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "mine")
    assert tokenizer.decode([5]) == "c"
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("</s>", 1)


def make_tiny_llama():
    """Return an untrained Llama of one layer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
        tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def write_gguf(model, path) -> None:
    """Write a tiny Llama as a GGUF file in float32."""
    config, state = model.config, model.state_dict()
    writer = gguf.GGUFWriter(path, "llama")
    metadata = {
        "context_length": 64,
        "embedding_length": 64,
        "block_count": 1,
        "feed_forward_length": 64,
        "head_count": 2,
        "head_count_kv": 2,
        "layer_norm_rms_eps": config.rms_norm_eps,
        "rope_freq_base": 10000.0,
        "rope_dimension_count": 32,
        "tokenizer_model": "gpt2",
        "tokenizer_pre": "default",
        "token_list": ["<s>", "</s>", "<pad>", *"abcdefghijk", "ab", "bc"],
        "token_types": [3, 3, 3] + [1] * 13,
        "token_merges": ["a b", "b c"],
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    for name, value in metadata.items():
        getattr(writer, f"add_{name}")(value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 1)
    del state["lm_head.weight"]  # tied to the embeddings
    for name, tensor in state.items():
        array = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:  # GGUF's order of rotary pairs
            array = array.reshape(2, 2, 32 // 2, 64).swapaxes(1, 2).reshape(64, 64)
        writer.add_tensor(names.get_name(name, [".weight"]), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("tied", "equal", "is_refused"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_differing_tied_embeddings_are_refused(toy_model, tmp_path, tied, equal, is_refused):
    folder = tmp_path / "source"
    shutil.copytree(toy_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": tied}))
    tensors = load_file(folder / "model.safetensors")
    head = tensors["model.embed_tokens.weight"].clone()
    tensors["lm_head.weight"] = head if equal else head + 1
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    if is_refused:
        with pytest.raises(BadModel, match=r"tie_word_embeddings is true, but model\.embed_\w+"):
            fetch(make_spec(folder), tmp_path / "mine")
    else:
        fetch(make_spec(folder), tmp_path / "mine")


@pytest.mark.parametrize(
    ("is_missing", "message"),
    [(True, "are missing, such as "), (False, "are of another shape than config.json says, such ")],
)
def test_weights_that_do_not_fit_the_config_are_refused(toy_model, tmp_path, is_missing, message):
    folder = tmp_path / "source"
    shutil.copytree(toy_model, folder)
    tensors = load_file(folder / "model.safetensors")
    norm = tensors.pop("model.norm.weight")
    if not is_missing:
        tensors["model.norm.weight"] = norm[:-1].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadModel) as refusal:
        fetch(make_spec(folder), tmp_path / "mine")
    assert f"1 tensor(s) {message}" in str(refusal.value)
    assert "model.norm.weight" in str(refusal.value)


def test_local_files_are_inputs_of_the_job(toy_model):
    files = list_source_files(make_spec(toy_model))
    assert {f"{toy_model}/config.json", f"{toy_model}/model.safetensors"} < {*files}
    assert list_source_files(make_spec("Qwen/Qwen2.5-0.5B")) == []


def test_chat_and_parallel_settings_do_not_change_the_spec_of_a_fetch(values):
    """For example, a 32B teacher is not fetched again for another number of GPUs."""
    models = values["models"]
    models["mine"] = {"source": "Qwen/Qwen2.5-0.5B", "revision": "a"}
    spec_before = build_model_spec(load(values), "mine")
    models["mine"] |= {"chat": True, "tensor_parallel": 8}
    assert build_model_spec(load(values), "mine") == spec_before
    models["mine"]["revision"] = "b"
    assert build_model_spec(load(values), "mine") != spec_before
