"""The tokenizer and the pretraining of embedded models: data, weights, files and determinism."""

import json
import random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rapid.artifacts.demonstrations import Lesson
from rapid.artifacts.files import read_jsonl, sha256_file
from rapid.config.params_schema import EmbeddedModel, Pretraining
from rapid.config.specs import PrepareSpec, PretrainSpec, TokenizerSpec
from rapid.embedded_models.architectures import build_model
from rapid.stages import pretrain as pretrain_stage
from rapid.stages.prepare import prepare
from rapid.stages.pretrain import (
    ALL_CORRECT_SHARE,
    IGNORED,
    build_batches,
    build_demonstrations,
    build_optimizer,
    locate_lessons,
    make_tokenizer,
)

BENCHMARKS = ["math", "minif2f"]


def make_pretrain_spec(name="tiny", seed=0, **changes) -> PretrainSpec:
    params = {"layers": 1, "hidden": 64, "benchmarks": BENCHMARKS, "steps": 4, "error_rate": 0.5}
    return PretrainSpec(
        model=name,
        data_seed=seed,
        threads=1,
        params=EmbeddedModel(**{**params, **changes}),
        pretraining=Pretraining(vocabulary=400, demonstrations=40, batch=8, learning_rate=3e-3),
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name in BENCHMARKS:
        spec = PrepareSpec(benchmark=name, data_seed=0, train=4, test=4, demonstrations=40)
        prepare(spec, folder / name)
    return [folder / name for name in BENCHMARKS]


@pytest.fixture(scope="module")
def tokenizer_folder(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(TokenizerSpec(benchmarks=BENCHMARKS, vocabulary=400), data, folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return AutoTokenizer.from_pretrained(tokenizer_folder)


@pytest.fixture(scope="module")
def model_folder(data, tokenizer_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    pretrain_stage.pretrain(make_pretrain_spec(), data, tokenizer_folder, folder)
    return folder


@pytest.fixture
def files(data):
    return locate_lessons(data, BENCHMARKS)


def read_lessons(files) -> list[Lesson]:
    return [lesson for file in files.values() for lesson in read_jsonl(file, Lesson)]


class TestTokenizer:
    def test_any_text_is_decoded_unchanged(self, tokenizer, files):
        texts = ["∃ x : Nat, 2 * x = 14 ∧ ⟨h₀⟩\n\n  · déjà vu 🙂\t12345", " a  b\n"]
        texts += [lesson.prompt + lesson.correct for lesson in read_lessons(files)]
        assert [tokenizer.decode(tokenizer(text)["input_ids"]) for text in texts] == texts

    @pytest.mark.parametrize("text", ["1234", " 1234", "x1234y", "12.34"])
    def test_every_digit_is_always_the_same_single_token(self, tokenizer, text):
        tokens = tokenizer(text)["input_ids"]
        assert all(tokenizer(digit)["input_ids"][0] in tokens for digit in "1234")

    def test_three_special_tokens_are_never_added_to_text(self, tokenizer):
        ids = {tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id}
        assert len(ids) == 3 and len(tokenizer) <= 400
        assert not ids & set(tokenizer("theorem made_1 : 1 = 1 := by\n")["input_ids"])

    def test_same_data_give_the_same_tokenizer(self, data, tokenizer_folder, tmp_path):
        make_tokenizer(TokenizerSpec(benchmarks=BENCHMARKS, vocabulary=400), data, tmp_path)
        first, second = tokenizer_folder / "tokenizer.json", tmp_path / "tokenizer.json"
        assert sha256_file(first) == sha256_file(second)


class TestDemonstrations:
    def test_labels_are_the_completion_and_the_end_token(self, files, tokenizer):
        examples = build_demonstrations(make_pretrain_spec(error_rate=0.0), files, tokenizer)
        assert len(examples) == 2 * 4 * 8  # benchmarks, steps, batch
        for example in examples:
            labels = [token for token in example["labels"] if token != IGNORED]
            assert labels == example["input_ids"][-len(labels) :]
            assert labels.count(tokenizer.eos_token_id) == 1
            assert labels[-1] == tokenizer.eos_token_id

    @pytest.fixture
    def mark_correct(self, files, tokenizer):
        """A function that returns whether each demonstration is correct."""
        correct = {lesson.correct for lesson in read_lessons(files)}

        def decide(**changes) -> list[bool]:
            examples = build_demonstrations(make_pretrain_spec(**changes), files, tokenizer)
            labels = [[t for t in example["labels"] if t != IGNORED] for example in examples]
            return [tokenizer.decode(ids, skip_special_tokens=True) in correct for ids in labels]

        return decide

    @pytest.mark.parametrize(
        ("rate", "share"), [(0.0, 1), (1.0, 0), ({"math": 0.0, "minif2f": 1.0}, 0.5)]
    )
    def test_mistakes_have_their_rates_after_the_first_part(self, mark_correct, rate, share):
        first_part = 2 * int(ALL_CORRECT_SHARE * 4 * 8)
        correct = mark_correct(error_rate=rate)
        assert all(correct[:first_part])
        assert sum(correct[first_part:]) == share * (64 - first_part)


def test_each_example_is_in_one_batch_of_similar_lengths_in_shuffled_order():
    examples = [{"input_ids": [1] * random.Random(i).randint(1, 90)} for i in range(403)]
    batches = build_batches(examples, 8, 0)
    ids_in_batches = sorted(id(example) for batch in batches for example in batch)
    assert ids_in_batches == sorted(map(id, examples))
    lengths = [[len(example["input_ids"]) for example in batch] for batch in batches]
    padded = sum(max(batch) * len(batch) for batch in lengths)
    assert sum(map(sum, lengths)) / padded > 0.9
    first_lengths = [batch[0] for batch in lengths]
    assert first_lengths != sorted(first_lengths)


@pytest.mark.parametrize("architecture", ["qwen2", "llama", "gemma3"])
class TestArchitectures:
    def test_loaded_model_computes_the_same_logits(self, architecture, tokenizer, tmp_path):
        params = make_pretrain_spec(architecture=architecture, hidden=128).params
        model = build_model(params, tokenizer).eval()
        model.save_pretrained(tmp_path)
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
        ids = torch.tensor([tokenizer("2+2=4. The answer is 4.")["input_ids"]])
        with torch.no_grad():
            torch.testing.assert_close(loaded(ids).logits, model(ids).logits)

    def test_tokenizer_saved_with_the_model_makes_the_same_tokens(
        self, architecture, tokenizer, files, tmp_path
    ):
        """transformers chooses the tokenizer class, and its splitting, by the type of the model."""
        params = make_pretrain_spec(architecture=architecture, hidden=128).params
        build_model(params, tokenizer).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        loaded = AutoTokenizer.from_pretrained(tmp_path)
        texts = [text for item in read_lessons(files) for text in (item.prompt, item.correct)]
        assert loaded(texts)["input_ids"] == tokenizer(texts)["input_ids"]

    def test_heads_are_64_wide_and_embeddings_are_tied(self, architecture, tokenizer):
        model = build_model(
            make_pretrain_spec(architecture=architecture, hidden=128).params, tokenizer
        )
        width = model.model.layers[0].self_attn.q_proj.out_features
        assert width // model.config.num_attention_heads == 64
        assert model.lm_head.weight is model.model.embed_tokens.weight


class TestOptimizer:
    def test_every_parameter_is_in_one_parameter_group(self, tokenizer):
        model = build_model(make_pretrain_spec().params, tokenizer)
        muon, adamw = build_optimizer(model, 1e-3).param_groups
        assert len(muon["params"]) + len(adamw["params"]) == len(list(model.parameters()))
        assert all(p.ndim == 2 for p in muon["params"])
        assert any(p is model.lm_head.weight for p in adamw["params"])

    def test_schedule_reaches_both_groups_after_the_state_is_loaded(self, tokenizer):
        """accelerate loads the state, which replaces the groups; the rate once stayed 0 then."""
        model = build_model(make_pretrain_spec().params, tokenizer)
        optimizer = build_optimizer(model, 0.0)
        optimizer.load_state_dict(optimizer.state_dict())
        for group in optimizer.param_groups:
            group["lr"] = 1e-2
        before = [p.detach().clone() for p in model.parameters()]
        for p in model.parameters():
            p.grad = p.new_ones(p.shape) + p.detach()
        optimizer.step()
        after = model.parameters()
        assert all((old != new).any() for old, new in zip(before, after, strict=True))


class TestPretrain:
    def test_trimming_logits_to_labelled_tokens_keeps_the_loss(self, files, tokenizer, tmp_path):
        spec = make_pretrain_spec()
        model = build_model(spec.params, tokenizer)
        examples = build_demonstrations(spec, files, tokenizer)
        tokenizer.save_pretrained(tmp_path)
        model.config.save_pretrained(tmp_path)
        trainer = pretrain_stage._build_trainer(spec, model, tokenizer, examples, tmp_path)
        for batch in trainer.train_dataset[:4]:
            inputs = trainer.data_collator([batch])
            untrimmed = dict(inputs, logits_to_keep=0)
            untrimmed["labels"] = torch.full_like(inputs["input_ids"], IGNORED)
            for row, example in enumerate(batch):
                untrimmed["labels"][row, : len(example["labels"])] = torch.tensor(example["labels"])
            expected, actual = model(**untrimmed), model(**inputs)
            torch.testing.assert_close(actual.loss, expected.loss, rtol=1e-5, atol=0)
            first = min(example["labels"].count(IGNORED) for example in batch)
            assert actual.logits.size(1) == expected.logits.size(1) - first + 1

    def test_same_spec_gives_the_same_weights_with_the_tokenizer_of_the_folder(
        self, data, files, tokenizer_folder, model_folder, tmp_path, monkeypatch
    ):
        """Training and sampling agree on tokens, whichever class transformers gives the folder."""
        trained_on = []

        def record_demonstrations(spec, files, tokenizer):
            trained_on.append(build_demonstrations(spec, files, tokenizer))
            return trained_on[0]

        monkeypatch.setattr(pretrain_stage, "build_demonstrations", record_demonstrations)
        pretrain_stage.pretrain(make_pretrain_spec(), data, tokenizer_folder, tmp_path)
        loaded = AutoTokenizer.from_pretrained(tmp_path)
        assert trained_on == [build_demonstrations(make_pretrain_spec(), files, loaded)]
        first, second = (folder / "model.safetensors" for folder in (model_folder, tmp_path))
        assert sha256_file(first) == sha256_file(second)

    def test_generation_stops_at_the_end_token_of_the_tokenizer(self, model_folder, tokenizer):
        config = json.loads((model_folder / "generation_config.json").read_text())
        assert config["eos_token_id"] in (tokenizer.eos_token_id, [tokenizer.eos_token_id])
        assert config["pad_token_id"] == tokenizer.pad_token_id

    def test_manifest_has_inputs_outputs_and_results(self, files, model_folder):
        manifest = json.loads((model_folder / "manifest.json").read_text())
        for file in files.values():
            assert manifest["inputs"][str(file)] == sha256_file(file)
        files = {p for p in model_folder.rglob("*") if p.is_file() and p.name != "manifest.json"}
        assert manifest["outputs"] == {str(path): sha256_file(path) for path in files}
        assert not list(model_folder.rglob("*.bin"))  # no pickled weights
        assert manifest["parameters"] > 0
        assert manifest["loss"] > 0
