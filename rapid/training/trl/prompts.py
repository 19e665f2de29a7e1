"""Loads the prompts of an inference batch, and checks them before completions are sampled."""

from functools import partial
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel
from trl import GRPOTrainer
from trl.data_utils import is_conversational
from typing_extensions import override

from rapid.training import batches
from rapid.training.caches import get_text_config, is_rotary
from rapid.training.config import RapidConfig
from rapid.training.notices import Notices
from rapid.training.refusals import (
    get_context,
    refuse_prompt_types,
    refuse_prompts,
    refuse_tokenizer,
)


class PromptTrainer(GRPOTrainer):
    """GRPOTrainer that loads whole inference batches, and refuses prompts it cannot sample from.

    GRPOTrainer itself passes such prompts on to the model.
    """

    args: RapidConfig
    model: PreTrainedModel
    processing_class: Any
    chat_template_kwargs: dict
    num_generations: int
    notices: Notices

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        refuse_tokenizer(self._tokenizer)

    @override
    def _get_dataloader(
        self,
        dataset,
        description,
        batch_size,
        sampler_fn=None,
        is_training=False,
        dataloader_key=None,
    ):
        """Return a dataloader whose batches are this process's part of an inference batch.

        TRL's per_device_train_batch_size * steps_per_generation rows are too many if n_step is not
        a multiple of the number of processes. TRL also reads the same rows again in each step on a
        batch, and moves them to the device. Here rows are cached, and moved once, for sampling.
        """
        if is_training:
            size = self.args.H * self.args.n_step
            batch_size = size // self.accelerator.num_processes
            if isinstance(dataset, Dataset):
                dataset = batches.RecentRows(dataset, size // self.num_generations)
        loader = super()._get_dataloader(
            dataset, description, batch_size, sampler_fn, is_training, dataloader_key
        )
        if is_training:
            loader.device = None
        return loader

    @override
    def get_test_dataloader(self, test_dataset):
        """Return `predict`'s dataloader; each prompt of a stream is repeated, once per completion.

        TRL does not repeat the prompts of a stream here, as it does in training and evaluation.
        """
        if isinstance(test_dataset, IterableDataset):
            return self.get_eval_dataloader(test_dataset)
        return super().get_test_dataloader(test_dataset)

    @override
    def _tokenize_prompts(self, prompts):
        """Tokenize prompts, and refuse those from which the model cannot sample.

        Also warn of keys of messages that the chat template does not read, and of completions that
        may go beyond the model's context. Rotary embeddings have values there, although the model
        was not trained with them. Other models fail. TRL checks none of this.
        """
        refuse_prompt_types(prompts)
        tokenized = super()._tokenize_prompts(prompts)
        # tokenized[0] has the token ids; images and other fields of multimodal models follow.
        config, limit = get_text_config(self.model), self.args.max_completion_length
        extrapolates = is_rotary(self.model)
        refuse_prompts(prompts, tokenized[0], config, None if extrapolates else limit)
        step = self.state.global_step + self.model.training  # in evaluation, the last step
        self.notices.check_context(step, max(map(len, tokenized[0])), get_context(config))
        if is_conversational({"prompt": prompts[0]}):
            render = partial(
                self.processing_class.apply_chat_template,
                tools=self.tools or None,
                chat_template=self.chat_template,
                add_generation_prompt=True,
                tokenize=False,
                **self.chat_template_kwargs,
            )
            self.notices.check_messages(step, prompts, render)
        return tokenized
