"""Supervised fine-tuning (SFT) on demonstrations: a teacher's correct completions, or made ones.

Made demonstrations are problems and completions that are generated from a seed
(`rapid.stages.demonstrate`).
"""

import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer
from typing_extensions import override

from rapid.algorithms.sft import SftParameters
from rapid.artifacts.demonstrations import Demonstration
from rapid.benchmarks.prompts import tokenize_prompt
from rapid.training.head import patch_head
from rapid.training.memory import AUTO
from rapid.training.refusals import FiniteWeights
from rapid.training.trl.micro_batch_trainer import MicroBatchTrainer
from rapid.training.trl.saving_trainer import SavingTrainer


class MicroBatchSFTTrainer(SavingTrainer, MicroBatchTrainer, SFTTrainer):
    """SFTTrainer that saves checkpoints atomically, and runs micro-batches that fit in memory.

    Args:
        micro_batch: largest number of demonstrations in one forward and backward pass, or "auto" to
            find it by trial.
    """

    model: Any

    def __init__(self, *arguments, micro_batch: int | str, **named):
        super().__init__(*arguments, **named)
        # Demonstrations, of one completion each. With "auto" this is 0 until the number is found.
        self.completions_per_micro_batch = 0 if micro_batch == AUTO else int(micro_batch)

    @override
    def training_step(self, model, inputs, num_items_in_batch=None):
        """Run a batch forward and backward in micro-batches; SFTTrainer runs it in one pass."""
        self.begin_step()
        with self.maybe_activation_offload_context:
            model.train()
            inputs = self._prepare_inputs(inputs)
            if not self.completions_per_micro_batch:
                self.completions_per_micro_batch = self._find_micro_batch_size()
            run = partial(self._run_micro_batches, model, inputs, num_items_in_batch)
            return self._run_with_halving(run, partial(model.zero_grad, set_to_none=True))

    def _run_micro_batches(self, model, inputs: dict, num_items_in_batch) -> torch.Tensor:
        """Run a batch forward and backward in micro-batches, and return the sum of their losses.

        The loss of a micro-batch is a sum over its tokens, divided by `num_items_in_batch`, the
        tokens of the whole batch. The auxiliary loss of a model with experts is averaged over the
        micro-batches, as SFTTrainer does with gradient accumulation.
        """
        count, loss = len(inputs["input_ids"]), torch.zeros((), device=self.accelerator.device)
        # The size is halved each time that memory runs out.
        size = max(1, self.completions_per_micro_batch >> self.halvings)
        self._largest_micro_batch = min(size, count)
        # TRL divides the auxiliary loss by this number, which transformers sets before each step.
        self.current_gradient_accumulation_steps = math.ceil(count / size)
        for start in range(0, count, size):
            micro_batch = {name: value[start : start + size] for name, value in inputs.items()}
            width = int(micro_batch["attention_mask"].sum(1).max())
            micro_batch = {name: value[:, :width] for name, value in micro_batch.items()}
            with patch_head(model):
                loss += self._backpropagate(
                    model,
                    micro_batch,
                    last=start + size >= count,
                    num_items_in_batch=num_items_in_batch,
                )
        return loss

    def _find_micro_batch_size(self) -> int:
        """Return how many demonstrations of the greatest length fit in a micro-batch."""
        rows: Any = self.train_dataset
        longest = max(rows, key=lambda row: len(row["input_ids"]))
        device, at_most = self.accelerator.device, self.args.per_device_train_batch_size

        def attempt(count: int, share: float) -> None:
            """Run `count` copies of a share of the longest demonstration forward and backward.

            The share is 1, or 1/2 to see how memory depends on the length (`find_largest_batch`).
            """
            # One token would have no label: the model predicts the next token.
            length = max(2, math.ceil(share * len(longest["input_ids"])))
            ids = torch.tensor(longest["input_ids"][:length], device=device).expand(count, -1)
            inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
            with self.compute_loss_context_manager(), patch_head(self.model):
                # TRL has patched the forward method: here it returns log-probabilities of the
                # labels instead of logits (`rapid.training.head`).
                output = self.model(**inputs, labels=ids, fused_lm_head=True)
            self._try_backward(output.log_probs.sum())

        advice = (
            f"the longest demonstration has {len(longest['input_ids'])} tokens: set "
            "checkpointing: true in sft, share the run among more GPUs "
            "(compute.processes), or use larger ones"
        )
        return self._find_largest_micro_batch(attempt, at_most, advice)


def build_sft_trainer(
    model: Path,
    demonstrations: list[Demonstration],
    params: SftParameters,
    common: dict,
    chat: bool = False,
) -> SFTTrainer:
    """Return a trainer on demonstrations, whose loss is on the tokens of completions only.

    Prompt and completion are tokenized separately, as in sampling. If they were one text, the end
    of the prompt and the start of the completion could become one token, which a policy that
    continues the prompt never samples.

    Args:
        model: folder of the model.
        common: training arguments that all trainers of the pipeline share.
        chat: whether prompts are rendered with the model's chat template.
    """
    tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    texts = [d.message if chat else d.prompt for d in demonstrations]
    prompts = [tokenize_prompt(tokenizer, text, chat) for text in texts]
    completions = tokenizer([d.completion for d in demonstrations], add_special_tokens=False)[
        "input_ids"
    ]
    end = [tokenizer.eos_token_id]
    rows = [
        {
            "input_ids": prompt + completion + end,
            "completion_mask": [0] * len(prompt) + [1] * (len(completion) + 1),
        }
        for prompt, completion in zip(prompts, completions, strict=True)
    ]
    config = SFTConfig(
        **common,
        learning_rate=params.learning_rate,
        num_train_epochs=params.epochs,
        per_device_train_batch_size=params.batch // PartialState().num_processes,
        max_length=None,
        completion_only_loss=True,
    )
    return MicroBatchSFTTrainer(
        str(model),
        config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[FiniteWeights()],
        micro_batch=params.micro_batch,
    )
