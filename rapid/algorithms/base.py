"""The base class of algorithms; each file beside this one says of one what is its own."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, Literal, NamedTuple

from rapid.algorithms.groups import Groups, Tensor, active_groups, group_mean, standardized
from rapid.settings import Settings


class Parameters(Settings):
    """Parameters of an algorithm, as params.yaml has them: with bounds, and a description each."""


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of an algorithm in figures, as matplotlib writes them."""

    color: str
    marker: str
    line: str | tuple = "-"


class LossInputs(NamedTuple):
    """The tensors of a loss. Rows are completions; groups are contiguous rows.

    Args:
        logp: (N, T) log pi of the sampled tokens, nats; carries the gradient.
        behavior_logp: (N, T) log mu of the same tokens; log pi itself on-policy.
        reference_logp: (N, T) under the model before training; log pi itself where none is needed.
        mask: (N, T) 1 where a token belongs to the completion, else 0.
        rewards: (N,).
        group_size: completions of one prompt.
        H: optimizer steps on the inference batch.
        limit: the most tokens of a completion.
    """

    logp: Tensor
    behavior_logp: Tensor
    reference_logp: Tensor
    mask: Tensor
    rewards: Tensor
    group_size: int
    H: int = 1
    limit: int = 1


class Algorithm:
    """One algorithm. A subclass sets what is its own; the registry has an instance of it.

    `settings` has the algorithm's parameters as attributes: an instance of `parameters`.
    """

    name: ClassVar[str]  # in params.yaml and in the folders of runs
    label: ClassVar[str]  # in reports
    look: ClassVar[Look]
    # The loss: a static function, whose arguments have names of `Pass` and of `parameters`.
    loss_function: ClassVar[Callable]
    # Parameters of the objective, which a variant may change; and the section of params.yaml, where
    # it has others.
    parameters: ClassVar[type[Parameters] | None] = None
    section: ClassVar[type[Parameters] | None] = None
    # Names in `RapidConfig` of parameters that have another name there.
    arguments: ClassVar[dict[str, str]] = {}
    # Published values, which a `RapidConfig` takes where none is given. params.yaml gives them all.
    defaults: ClassVar[dict[str, Any]] = {}
    H: ClassVar[Literal["required", "optional", "none"]] = "optional"  # in its name
    imitates: ClassVar[bool] = False  # a teacher, by supervised learning; the others are RL
    scale_rewards: ClassVar[str] = "none"  # as GRPOConfig has it: "group", where the loss does so
    weighs_rewards: ClassVar[bool] = False  # advantages depend on the group's importance weights
    samples_from_a_server: ClassVar[bool] = False  # with a GPU of its own, where there are GPUs
    mean_over: ClassVar[Literal["sequence", "token"]] = "sequence"  # what the loss averages
    metrics_over: ClassVar[Literal["sequence", "token"]] = "sequence"  # what metrics average

    # Parameters -----------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The key of its section in params.yaml."""
        return self.name.replace("-", "_")

    def select_objective(self, params: Any) -> Parameters | None:
        """Return the parameters that decide a run's result, out of all of params.yaml."""
        return getattr(params, self.key) if self.parameters else None

    def sampling_batch(self, params: Any) -> int | None:
        """Return how many completions are sampled at a time; None is the whole inference batch."""
        return None

    def config_error(self, params: Any, group_size: int) -> tuple[str, Any, str] | None:
        """Return a key of params.yaml, its value and what is allowed, if it cannot be run so."""
        return None

    @property
    def fields(self) -> dict[str, str]:
        """The names in `RapidConfig` of its parameters, and their own."""
        names = self.parameters.model_fields if self.parameters else ()
        return {self.arguments.get(name, name): name for name in names}

    # Names and looks ------------------------------------------------------------------------------

    @property
    def name_pattern(self) -> str:
        """A regular expression of its names, without changes."""
        h = {"required": "-H[1-9][0-9]*", "optional": "(-H[1-9][0-9]*)?", "none": ""}
        return self.name + h[self.H]

    def at(self, h: int) -> str:
        """Return its name with this H."""
        return f"{self.name}-H{h}"

    def named(self, name: str) -> bool:
        """Return whether a name is this algorithm's, with any H and changes."""
        return name.split(",")[0].partition("-H")[0] == self.name

    def get_look(self, h: int) -> Look:
        """Return its look with this H: its colour, with a marker and line for each power of 2."""
        if h == 1:
            return self.look
        number = h.bit_length()
        return Look(self.look.color, "vP*X<>"[number % 6], (0, (5, *(1, 1) * (number % 3), 1)))

    @property
    def hyperparameter_rows(self) -> dict[str, str]:
        """Rows of the table of hyperparameters: a title, and the key in a run's spec."""
        fields = self.parameters.model_fields.items() if self.parameters else ()
        return {field.title: f"objective.{name}" for name, field in fields if field.title}

    # Training -------------------------------------------------------------------------------------

    def rounds(self, parameters: Any) -> int:
        """Return the rounds of sampling: each but the first replaces groups of equal rewards."""
        return 1

    def build_reward_functions(
        self, parameters: Any, limit: int, reward: Callable
    ) -> list[Callable]:
        """Return the reward functions. A completion's reward is the sum of what they return.

        Args:
            limit: the most tokens of a completion.
            reward: the grader's reward function.
        """
        return [reward]

    def gradient_groups(self, settings: Any, on_policy: bool) -> Groups:
        """Return which groups may have a gradient. The others are not run.

        Args:
            on_policy: the completions were sampled by the policy as it is now.
        """
        return "all"

    def have_gradient(
        self, rewards: Tensor, group_size: int, settings: Any, *, on_policy: bool
    ) -> Tensor:
        """Return which groups have a gradient that may differ from zero. (N,) -> (K,) bool"""
        return active_groups(self.gradient_groups(settings, on_policy), rewards, group_size)

    def compares_weights(self, settings: Any) -> bool:
        """Return whether a completion's gradient depends on importance weights of its group."""
        return False

    def advantages(self, settings: Any, rewards: Tensor, group_size: int) -> Tensor:
        """Return the advantages on-policy, for the table of completions. (N,) -> (N,)

        Here they are rewards less their group's mean, in standard deviations if `scale_rewards`
        says so.
        """
        if self.scale_rewards == "group":
            return standardized(rewards, group_size)
        return rewards - group_mean(rewards, group_size)

    def loss(self, settings: Any, tensors: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss, averaged over `mean_over`, and metrics over `metrics_over`, 0-d each."""
        arguments = {
            name: getattr(tensors if name in LossInputs._fields else settings, name)
            for name in signature(self.loss_function).parameters
        }
        return self.loss_function(**arguments)


class GroupRelative(Algorithm):
    """An algorithm that has no gradient in a group of equal rewards: none has an advantage."""

    def gradient_groups(self, settings: Any, on_policy: bool) -> Groups:
        return "unequal"
