"""Schemas of the demonstrations for pre-training and for supervised fine-tuning.

Demonstrations for pre-training are generated (`Lesson`). Demonstrations for fine-tuning are
generated too, or sampled from a teacher model (`Demonstration`).
"""

import random

from pydantic import Field

from rapid.artifacts.files import Record


class Lesson(Record):
    """pretrain.jsonl: a prompt, a correct completion, and completions with one mistake each."""

    id: str
    prompt: str
    correct: str
    mistakes: list[str]

    def draw_completion(self, rng: random.Random, error_rate: float) -> str:
        """Return one of the mistakes with probability `error_rate`, else the correct completion."""
        return rng.choice(self.mistakes) if rng.random() < error_rate else self.correct


class Demonstration(Record):
    """samples.jsonl: a problem, and a completion on which SFT trains."""

    id: str
    prompt: str = Field(description="the problem as a text to be continued")
    message: str = Field(description="the problem as a chat message")
    completion: str
