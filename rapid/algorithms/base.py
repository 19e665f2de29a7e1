"""What an algorithm says about itself; each file beside this one says it for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from rapid.algorithms.groups import Groups, chosen

if TYPE_CHECKING:
    from torch import Tensor

Precision = Annotated[
    Literal["float32", "bfloat16"], Field(description="of weights in computation")
]


class Parameters(BaseModel):
    """Parameters of an algorithm, as params.yaml has them: with bounds, and a description each."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of an algorithm in figures, as matplotlib writes them."""

    color: str
    marker: str
    line: str | tuple = "-"


class Pass(NamedTuple):
    """What a loss is computed from. Rows are completions; groups are contiguous rows.

    Args:
        logp: (N, T) log pi of the sampled tokens, nats; carries the gradient.
        behavior_logp: (N, T) log mu of the same tokens; log pi itself on-policy.
        reference_logp: (N, T) under the model before training; log pi itself where none is asked for.
        mask: (N, T) 1 where a token belongs to the completion, else 0.
        rewards: (N,).
        group_size: completions of one prompt.
    """

    logp: Tensor
    behavior_logp: Tensor
    reference_logp: Tensor
    mask: Tensor
    rewards: Tensor
    group_size: int


class Algorithm:
    """One algorithm. A subclass sets what is its own; the registry has an instance of it.

    `settings` is whatever has the algorithm's parameters as attributes: a `RapidConfig` in the trainer,
    the parameters themselves in a plan.
    """

    name: ClassVar[str]  # in params.yaml and in the folders of runs
    label: ClassVar[str]  # in reports
    look: ClassVar[Look]
    parameters: ClassVar[type[Parameters] | None] = (
        None  # of the objective; a variant may change them
    )
    section: ClassVar[type[Parameters] | None] = (
        None  # of params.yaml, where it has more than these
    )
    H: ClassVar[Literal["required", "optional", "none"]] = "optional"
    imitates: ClassVar[bool] = False  # a teacher, by supervised learning; the others are RL
    has_kl: ClassVar[bool] = False  # to a reference policy; the parameter `beta` is its coefficient
    samples_from_a_server: ClassVar[bool] = False  # with a GPU of its own, where there are GPUs
    mean_over: ClassVar[Literal["sequence", "token"]] = "sequence"  # the loss of a mini-batch
    metrics_over: ClassVar[Literal["sequence", "token"]] = "sequence"

    # Parameters -----------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The key of its section in params.yaml."""
        return self.name.replace("-", "_")

    def objective(self, params: Any) -> Parameters | None:
        """Return the parameters that decide a run's result, out of all of params.yaml."""
        return getattr(params, self.key) if self.parameters else None

    def sampling_batch(self, params: Any) -> int | None:
        """Return how many completions are sampled at a time; None is the whole inference batch."""
        return None

    def refused(self, params: Any, group_size: int) -> tuple[str, Any, str] | None:
        """Return a key of params.yaml, its value and what is allowed, if it cannot be run so."""
        return None

    # Names and looks ------------------------------------------------------------------------------

    @property
    def pattern(self) -> str:
        """A regular expression of its names, without changes."""
        h = {"required": "-H[1-9][0-9]*", "optional": "(-H[1-9][0-9]*)?", "none": ""}
        return self.name + h[self.H]

    def at(self, h: int) -> str:
        """Return its name with this H."""
        return f"{self.name}-H{h}"

    def named(self, name: str) -> bool:
        """Return whether a name is this algorithm's, with any H and changes."""
        return name.split(",")[0].partition("-H")[0] == self.name

    def look_at(self, h: int) -> Look:
        """Return its look with this H: its colour, and another marker and line for each power of 2."""
        if h == 1:
            return self.look
        number = h.bit_length()
        return Look(self.look.color, "vP*X<>"[number % 6], (0, (5, *(1, 1) * (number % 3), 1)))

    @property
    def reported(self) -> dict[str, str]:
        """Rows of the table of hyperparameters: a title, and the key in a run's spec."""
        fields = self.parameters.model_fields.items() if self.parameters else ()
        return {field.title: f"objective.{name}" for name, field in fields if field.title}

    # Training -------------------------------------------------------------------------------------

    def arguments(self, parameters: Parameters | None) -> dict[str, Any]:
        """Return the arguments of `RapidConfig` that these parameters mean."""
        return {"parameters": parameters.model_dump()} if parameters else {}

    def rounds(self, parameters: Parameters | None) -> int:
        """Return how often groups of equal rewards are sampled anew, the first time included."""
        return 1

    def rewards(
        self, parameters: Parameters | None, limit: int, reward: Callable
    ) -> list[Callable]:
        """Return the reward functions; the sum of what they return is a completion's reward.

        Args:
            limit: tokens of a completion at most.
            reward: the grader's.
        """
        return [reward]

    def gradient_groups(self, settings: Any, on_policy: bool) -> Groups:
        """Return which groups may have a gradient: the others are not run.

        Args:
            on_policy: the completions were sampled by the policy as it is now.
        """
        return "unequal"

    def contributes(
        self, rewards: Tensor, group_size: int, settings: Any, *, on_policy: bool
    ) -> Tensor:
        """Return which groups have a gradient that may differ from zero. (N,) -> (K,) bool

        Raises:
            ValueError: N is not a whole number of groups.
        """
        return chosen(self.gradient_groups(settings, on_policy), rewards, group_size)

    def loss(self, settings: Any, given: Pass) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar to minimise and metrics, 0-d each; means over `mean_over`, `metrics_over`."""
        raise NotImplementedError
