"""Prompts as GRPOTrainer renders and tokenizes them, looked at before anything is sampled."""

from functools import partial
from typing import Any

from trl import GRPOTrainer
from trl.data_utils import is_conversational
from typing_extensions import override

from rapid.training.caches import model_config
from rapid.training.notices import Notices
from rapid.training.refusals import refuse_prompts


class CheckedPrompts(GRPOTrainer):
    """GRPOTrainer, which would leave prompts that it cannot sample from to the model."""

    processing_class: Any
    chat_template_kwargs: dict
    notices: Notices

    @override
    def _tokenize_prompts(self, prompts):
        """Refuse prompts of which nothing can be sampled, and warn of what a chat template drops.

        TRL does neither.
        """
        tokenized = super()._tokenize_prompts(prompts)
        refuse_prompts(prompts, tokenized[0], model_config(self.model))
        if is_conversational({"prompt": prompts[0]}):
            render = partial(
                self.processing_class.apply_chat_template,
                tools=self.tools or None,
                chat_template=self.chat_template,
                add_generation_prompt=True,
                tokenize=False,
                **self.chat_template_kwargs,
            )
            self.notices.check_messages(self.state.global_step + 1, prompts, render)
        return tokenized
