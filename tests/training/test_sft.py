"""SFT learns the tokens of completions, in micro-batches that do not change the result."""

from copy import deepcopy
from shutil import copytree
from types import SimpleNamespace

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer
from trl import SFTTrainer

from rapid.algorithms.sft import SftParameters
from rapid.artifacts.demonstrations import Demonstration
from rapid.training.sft import MicroBatchSFTTrainer, build_sft_trainer
from tests.training.conformance.families import build_untrained
from tests.training.loops import COMMON, assert_same_training


def build_trainer(toy_model, tmp_path, learning_rate=1e-3, **sizes):
    sampling = {"temperature": 1.0, "top_p": 1.0, "samples": 1}
    params = SftParameters(learning_rate=learning_rate, epochs=1, **sizes, **sampling)
    demonstrations = [
        Demonstration(id="1", prompt="ab\n", message="AB", completion="  cd"),
        Demonstration(id="2", prompt="a\n", message="A", completion="  c"),
    ]
    common = {name: COMMON[name] for name in COMMON if name != "num_generations"}
    return build_sft_trainer(
        toy_model, demonstrations, params, {"output_dir": str(tmp_path)} | common
    )


@pytest.fixture
def trainer(toy_model, tmp_path):
    return build_trainer(toy_model, tmp_path, batch=2, micro_batch=1)


def test_loss_covers_completion_and_end_only(trainer):
    tokenizer = trainer.processing_class
    learned_texts = {
        tokenizer.decode([token for token in row if token != -100])
        for batch in trainer.get_train_dataloader()
        for row in batch["labels"].tolist()
    }
    assert learned_texts == {"  cd<eos>", "  c<eos>"}


def test_prompt_and_completion_are_tokenized_separately(toy_model, tmp_path):
    """The tokenizer starts each text with <pad>, which must not come before a completion."""
    tokenizer = AutoTokenizer.from_pretrained(toy_model)
    encode, end = tokenizer.encode, tokenizer.eos_token_id
    texts = ("ab\n", "  cd"), ("a\n", "  c")
    expected = [[0, *encode(prompt), *encode(text), end] for prompt, text in texts]
    post_processor = TemplateProcessing(single="<pad> $A", special_tokens=[("<pad>", 0)])
    tokenizer.backend_tokenizer.post_processor = post_processor
    copytree(toy_model, tmp_path, dirs_exist_ok=True)
    tokenizer.save_pretrained(tmp_path)
    trainer = build_trainer(tmp_path, tmp_path, batch=2, micro_batch=1)
    assert [row["input_ids"] for row in trainer.train_dataset] == expected


@pytest.fixture
def micro_batch_shapes(monkeypatch):
    """A list that collects the shape of the input of each micro-batch."""
    shapes = []
    backpropagate = MicroBatchSFTTrainer._backpropagate

    def record_shape(self, model, micro_batch, **kwargs):
        shapes.append(tuple(micro_batch["input_ids"].shape))
        return backpropagate(self, model, micro_batch, **kwargs)

    monkeypatch.setattr(MicroBatchSFTTrainer, "_backpropagate", record_shape)
    return shapes


def test_micro_batches_are_as_wide_as_their_rows(trainer, micro_batch_shapes):
    assert trainer.train().global_step == 1
    assert sorted(micro_batch_shapes) == [(1, 6), (1, 8)]
    assert trainer.args.learning_rate == 1e-3


@pytest.mark.parametrize(("processes", "device_batch_size"), [(1, 12), (2, 6)])
def test_batch_is_divided_among_processes(
    toy_model, tmp_path, monkeypatch, processes, device_batch_size
):
    state = SimpleNamespace(num_processes=processes)
    monkeypatch.setattr("rapid.training.sft.PartialState", lambda: state)
    args = build_trainer(toy_model, tmp_path, batch=12, micro_batch=5).args
    assert args.per_device_train_batch_size == device_batch_size
    assert args.gradient_accumulation_steps == 1


def test_micro_batch_size_does_not_change_training(toy_model, tmp_path):
    """Two demonstrations have unequal lengths; the loss is a mean over the tokens of both."""
    single, double = (
        build_trainer(toy_model, tmp_path, learning_rate=0.3, batch=2, micro_batch=size)
        for size in (1, 2)
    )
    for trainer in (single, double):
        trainer.train()
    assert_same_training(single, double, toy_model)
    losses = [trainer.state.log_history[0]["loss"] for trainer in (single, double)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_auxiliary_loss_of_experts_is_averaged_over_micro_batches(toy_model, tmp_path):
    """The reference is TRL's trainer with gradient accumulation."""
    model = build_untrained("Olmoe")
    model.config.router_aux_loss_coef = 1.0
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(toy_model).save_pretrained(tmp_path)
    trainer = build_trainer(tmp_path, tmp_path, learning_rate=0.3, batch=2, micro_batch=1)
    config = deepcopy(trainer.args)
    config.per_device_train_batch_size, config.gradient_accumulation_steps = 1, 2
    trl_trainer = SFTTrainer(
        str(tmp_path),
        config,
        train_dataset=trainer.train_dataset,
        processing_class=trainer.processing_class,
    )
    for each in (trainer, trl_trainer):
        each.train()
    assert_same_training(trainer, trl_trainer, tmp_path)
    assert trainer.aux_loss_enabled


def test_auto_size_tries_longest_demonstrations(
    toy_model, tmp_path, monkeypatch, micro_batch_shapes
):
    tried_shapes = []

    def find_one(attempt, at_most, device, reserved):
        trainer.model.model.register_forward_pre_hook(
            lambda module, args, kwargs: tried_shapes.append(tuple(kwargs["input_ids"].shape)),
            with_kwargs=True,
        )
        attempt(2, 1.0)
        assert at_most == 2
        return 1

    monkeypatch.setattr("rapid.training.trl.micro_batch_trainer.find_largest_batch", find_one)
    trainer = build_trainer(toy_model, tmp_path, batch=2, micro_batch="auto")
    trainer.train()
    assert tried_shapes[0] == (2, 8)
    assert [rows for rows, _ in micro_batch_shapes] == [1, 1]


def test_out_of_memory_halves_micro_batches(toy_model, tmp_path, monkeypatch, caplog):
    backpropagate = MicroBatchSFTTrainer._backpropagate

    def fail_above_one_row(self, model, micro_batch, **kwargs):
        loss = backpropagate(self, model, micro_batch, **kwargs)
        if len(micro_batch["input_ids"]) > 1:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return loss

    unlimited = build_trainer(toy_model, tmp_path, learning_rate=0.3, batch=2, micro_batch=2)
    unlimited.train()
    monkeypatch.setattr(MicroBatchSFTTrainer, "_backpropagate", fail_above_one_row)
    halved = build_trainer(toy_model, tmp_path, learning_rate=0.3, batch=2, micro_batch=2)
    halved.train()
    assert (halved.halvings, len(caplog.messages)) == (1, 1)
    assert_same_training(halved, unlimited, toy_model)
