"""Checks the prompts that GRPOTrainer renders and tokenizes, before completions are sampled."""

from functools import partial
from typing import Any

from trl import GRPOTrainer
from trl.data_utils import is_conversational
from typing_extensions import override

from rapid.training.caches import get_text_config
from rapid.training.notices import Notices
from rapid.training.refusals import refuse_prompts


class PromptCheckTrainer(GRPOTrainer):
    """GRPOTrainer that refuses prompts from which the model cannot sample.

    GRPOTrainer itself passes such prompts on to the model.
    """

    processing_class: Any
    chat_template_kwargs: dict
    notices: Notices

    @override
    def _tokenize_prompts(self, prompts):
        """Tokenize prompts, and refuse empty and too long ones.

        Also warn of keys of messages that the chat template does not read. TRL checks none of this.
        """
        tokenized = super()._tokenize_prompts(prompts)
        # tokenized[0] has the token ids; images and other fields of multimodal models follow.
        refuse_prompts(prompts, tokenized[0], get_text_config(self.model))
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
