"""What sft is trained on."""

from shutil import copytree
from types import SimpleNamespace

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from rapid.algorithms.sft import SftParameters
from rapid.artifacts.demonstrations import Demonstration
from rapid.training.sft import ImitatingTrainer, sft_trainer
from tests.training.loops import COMMON, assert_same_learning, get_initial_weights, get_weights


def build(toy_model, tmp_path, rate=1e-3, **sizes):
    ask = {"temperature": 1.0, "top_p": 1.0, "samples": 1}
    params = SftParameters(learning_rate=rate, epochs=1, **sizes, **ask)
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


@pytest.fixture
def passes(monkeypatch):
    """Collects the shape of the input of each pass."""
    shapes = []
    run = ImitatingTrainer._backpropagate

    def counted(self, model, micro_batch, **named):
        shapes.append(tuple(micro_batch["input_ids"].shape))
        return run(self, model, micro_batch, **named)

    monkeypatch.setattr(ImitatingTrainer, "_backpropagate", counted)
    return shapes


def test_a_step_takes_several_passes_each_as_wide_as_its_own(trainer, passes):
    assert trainer.train().global_step == 1
    assert sorted(passes) == [(1, 6), (1, 8)]
    assert trainer.args.learning_rate == 1e-3


@pytest.mark.parametrize(("processes", "of_a_process"), [(1, 12), (2, 6)])
def test_processes_share_a_batch(toy_model, tmp_path, monkeypatch, processes, of_a_process):
    state = SimpleNamespace(num_processes=processes)
    monkeypatch.setattr("rapid.training.sft.PartialState", lambda: state)
    args = build(toy_model, tmp_path, batch=12, micro_batch=5).args
    assert args.per_device_train_batch_size == of_a_process
    assert args.gradient_accumulation_steps == 1


def test_passes_do_not_change_what_is_learned(toy_model, tmp_path):
    """Of two demonstrations of unequal length: the loss is a mean over the tokens of both."""
    one, two = (build(toy_model, tmp_path, rate=0.3, batch=2, micro_batch=n) for n in (1, 2))
    for trainer in (one, two):
        trainer.train()
    start = get_initial_weights(toy_model, torch.float32)
    assert_same_learning(get_weights(one), get_weights(two), start)
    losses = [trainer.state.log_history[0]["loss"] for trainer in (one, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_auto_is_what_memory_allows_of_the_longest(toy_model, tmp_path, monkeypatch, passes):
    tried = []

    def choose(attempt, most, device, reserved):
        trainer.model.model.register_forward_pre_hook(
            lambda module, args, named: tried.append(tuple(named["input_ids"].shape)),
            with_kwargs=True,
        )
        attempt(2, 1.0)
        assert most == 2
        return 1

    monkeypatch.setattr("rapid.training.trl.micro_batch_trainer.find_largest_batch", choose)
    trainer = build(toy_model, tmp_path, batch=2, micro_batch="auto")
    trainer.train()
    assert tried[0] == (2, 8)
    assert [rows for rows, _ in passes] == [1, 1]


def test_where_memory_runs_out_a_pass_is_halved(toy_model, tmp_path, monkeypatch, caplog):
    run = ImitatingTrainer._backpropagate

    def limited(self, model, micro_batch, **named):
        loss = run(self, model, micro_batch, **named)
        if len(micro_batch["input_ids"]) > 1:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")
        return loss

    roomy = build(toy_model, tmp_path, rate=0.3, batch=2, micro_batch=2)
    roomy.train()
    monkeypatch.setattr(ImitatingTrainer, "_backpropagate", limited)
    halved = build(toy_model, tmp_path, rate=0.3, batch=2, micro_batch=2)
    halved.train()
    assert (halved.halvings, len(caplog.messages)) == (1, 1)
    assert_same_learning(
        get_weights(halved), get_weights(roomy), get_initial_weights(toy_model, torch.float32)
    )
