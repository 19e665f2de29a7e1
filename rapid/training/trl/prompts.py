"""Checks the prompts that GRPOTrainer renders and tokenizes, before completions are sampled."""

from functools import partial
from typing import Any

from transformers import PreTrainedModel
from trl import GRPOTrainer
from trl.data_utils import is_conversational
from typing_extensions import override

from rapid.training.caches import get_text_config, is_rotary
from rapid.training.config import RapidConfig
from rapid.training.notices import Notices
from rapid.training.refusals import (
    get_context,
    refuse_prompt_types,
    refuse_prompts,
    refuse_tokenizer,
)


class PromptCheckTrainer(GRPOTrainer):
    """GRPOTrainer that refuses prompts from which the model cannot sample.

    GRPOTrainer itself passes such prompts on to the model.
    """

    args: RapidConfig
    model: PreTrainedModel
    processing_class: Any
    chat_template_kwargs: dict
    notices: Notices

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        refuse_tokenizer(self._tokenizer)

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
