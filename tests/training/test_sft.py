"""What sft is trained on."""

from shutil import copytree
from types import SimpleNamespace

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from rapid.algorithms.sft import SftParameters
from rapid.artifacts.demonstrations import Demonstration
from rapid.training.sft import sft_trainer
from tests.training.loops import COMMON


def build(toy_model, tmp_path, **sizes):
    ask = {"temperature": 1.0, "top_p": 1.0, "samples": 1}
    params = SftParameters(learning_rate=1e-3, epochs=1, **sizes, **ask)
    demonstrations = [
        Demonstration(id="1", prompt="ab\n", message="AB", completion="  cd"),
        Demonstration(id="2", prompt="a\n", message="A", completion="  c"),
    ]
    common = {name: COMMON[name] for name in COMMON if name != "num_generations"}
    return sft_trainer(toy_model, demonstrations, params, {"output_dir": str(tmp_path)} | common)


@pytest.fixture
def trainer(toy_model, tmp_path):
    return build(toy_model, tmp_path, batch=2, micro_batch=1)


def test_the_loss_is_on_the_completion_and_its_end_only(trainer):
    tokenizer = trainer.processing_class
    imitated = {
        tokenizer.decode([token for token in row if token != -100])
        for batch in trainer.get_train_dataloader()
        for row in batch["labels"].tolist()
    }
    assert imitated == {"  cd<eos>", "  c<eos>"}


def test_the_tokens_are_those_of_prompt_and_completion_apart(toy_model, tmp_path):
    """Of a tokenizer that begins a text with <pad>, which a completion does not."""
    tokenizer = AutoTokenizer.from_pretrained(toy_model)
    encode, end = tokenizer.encode, tokenizer.eos_token_id
    texts = ("ab\n", "  cd"), ("a\n", "  c")
    expected = [[0, *encode(prompt), *encode(text), end] for prompt, text in texts]
    begun = TemplateProcessing(single="<pad> $A", special_tokens=[("<pad>", 0)])
    tokenizer.backend_tokenizer.post_processor = begun
    copytree(toy_model, tmp_path, dirs_exist_ok=True)
    tokenizer.save_pretrained(tmp_path)
    trainer = build(tmp_path, tmp_path, batch=2, micro_batch=1)
    assert [row["input_ids"] for row in trainer.train_dataset] == expected


def test_a_step_takes_several_passes(trainer):
    assert trainer.args.gradient_accumulation_steps == 2
    assert trainer.train().global_step == 1
    assert trainer.args.learning_rate == 1e-3


@pytest.mark.parametrize(("processes", "of_a_pass", "passes"), [(1, 4, 3), (2, 3, 2)])
def test_a_pass_is_the_largest_part_of_a_batch_that_fits(
    toy_model, tmp_path, monkeypatch, processes, of_a_pass, passes
):
    state = SimpleNamespace(num_processes=processes)
    monkeypatch.setattr("rapid.training.sft.PartialState", lambda: state)
    args = build(toy_model, tmp_path, batch=12, micro_batch=5).args
    assert args.per_device_train_batch_size == of_a_pass
    assert args.gradient_accumulation_steps == passes
