"""Published models: from where they come, and what is refused."""

import json
import shutil
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rapid.config.jobs import list_jobs
from rapid.config.params import load, read
from rapid.config.specs import FetchSpec, list_source_files, model_spec
from rapid.stages.fetch import BadModel, fetch
from tests.conftest import ROOT


def spec(source, **other_fields) -> FetchSpec:
    return FetchSpec(model="mine", params={"source": str(source), **other_fields})


def test_a_folder_is_copied_with_digests_in_the_place_of_an_earlier_one(toy_model, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/old.safetensors").touch()
    fetch(spec(toy_model), tmp_path / "mine")
    manifest = json.loads((tmp_path / "mine/manifest.json").read_text())
    assert {*manifest["inputs"]} == {*list_source_files(spec(toy_model))}
    assert f"{toy_model}/model.safetensors" in manifest["inputs"]
    assert f"{tmp_path}/mine/model.safetensors" in manifest["outputs"]
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "mine")
    assert manifest["parameters"] == ours.num_parameters()
    assert not (tmp_path / "mine/old.safetensors").exists()


@pytest.mark.parametrize("source", ["mine", "mine/tiny.gguf", "./other/../mine"])
def test_a_model_that_lies_where_the_job_writes_is_left_there(tmp_path, monkeypatch, source):
    """The folder is emptied first; README says that base models lie in models/NAME."""
    monkeypatch.chdir(tmp_path)
    for name in ("other", "mine"):
        (tmp_path / name).mkdir()
    files = [tmp_path / "mine" / name for name in ("model.safetensors", "tiny.gguf")]
    for file in files:
        file.touch()
    with pytest.raises(BadModel, match=r"models\.mine\.source: the source is in mine"):
        fetch(spec(source), Path("mine"))
    assert all(file.exists() for file in files)


def test_the_working_directory_is_not_emptied(toy_model, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(BadModel, match="the working directory is"):
        fetch(spec(toy_model), tmp_path)
    assert (tmp_path / "here").exists()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("pypi:thing", "allowed: pypi:NAME==VERSION"),
        ("pypi:rapid no==1", "allowed: pypi:NAME==VERSION"),
        ("no/such.gguf", "the file no/such.gguf does not exist"),
        ("not a name", "neither an existing folder or file nor a name on the hub"),
        ("someone/something", "someone/something at main cannot be downloaded"),
    ],
)
def test_a_source_that_gives_nothing_is_named(tmp_path, source, says):
    with pytest.raises(BadModel, match=r"models\.mine\.source") as refusal:
        fetch(spec(source), tmp_path / "mine")
    assert says in str(refusal.value)


def test_a_gguf_file_is_dequantised(tmp_path):
    """A tiny Llama in float32, written as GGUF: the same logits come back."""
    model, path = tiny_llama(), tmp_path / "tiny.gguf"
    write_gguf(model, path)
    fetch(spec(path), tmp_path / "mine")
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "mine")
    ids = torch.arange(8)[None]
    torch.testing.assert_close(ours(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-4)
    manifest = json.loads((tmp_path / "mine/manifest.json").read_text())
    assert manifest["weights"] == "de-quantised from tiny.gguf"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "mine")
    assert tokenizer.decode([5]) == "c"
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("</s>", 1)


def tiny_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
        tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def write_gguf(model, path) -> None:
    config, state = model.config, model.state_dict()
    writer = gguf.GGUFWriter(path, "llama")
    about = {
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
    for name, value in about.items():
        getattr(writer, f"add_{name}")(value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 1)
    del state["lm_head.weight"]  # that of the embeddings
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
    ("tied", "same", "is_refused"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
def test_tied_embeddings_that_differ_are_refused(toy_model, tmp_path, tied, same, is_refused):
    folder = tmp_path / "source"
    shutil.copytree(toy_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": tied}))
    tensors = load_file(folder / "model.safetensors")
    head = tensors["model.embed_tokens.weight"].clone()
    tensors["lm_head.weight"] = head if same else head + 1
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    if is_refused:
        with pytest.raises(BadModel, match=r"tie_word_embeddings is true, but model\.embed_\w+"):
            fetch(spec(folder), tmp_path / "mine")
    else:
        fetch(spec(folder), tmp_path / "mine")


def test_files_here_are_inputs_of_the_job(toy_model):
    files = list_source_files(spec(toy_model))
    assert {f"{toy_model}/config.json", f"{toy_model}/model.safetensors"} < {*files}
    assert list_source_files(spec("Qwen/Qwen2.5-0.5B")) == []


def test_what_is_no_part_of_a_model_is_no_part_of_its_copy(values):
    """A 32B teacher is not fetched again for another number of GPUs."""
    models = values["models"]
    models["mine"] = {"source": "Qwen/Qwen2.5-0.5B", "revision": "a"}
    alone = model_spec(load(values), "mine")
    models["mine"] |= {"chat": True, "tensor_parallel": 8}
    assert model_spec(load(values), "mine") == alone
    models["mine"]["revision"] = "b"
    assert model_spec(load(values), "mine") != alone


def test_the_small_experiment_has_one_published_model_and_nothing_made():
    params = load(read(ROOT / "params.yaml", ROOT / "experiments/small.yaml"))
    assert list(params.benchmarks) == ["math"]
    models = [job.folder for job in list_jobs(params) if job.stage == "models"]
    assert models == ["experiments/small/models/smollm2-135m"]
    assert isinstance(model_spec(params, "smollm2-135m"), FetchSpec)
