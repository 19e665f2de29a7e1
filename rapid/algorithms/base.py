"""Base class of the algorithms. Each file beside this one has a subclass."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, Literal, NamedTuple

from rapid.algorithms.groups import Groups, Tensor, active_groups, group_mean, standardized
from rapid.settings import Settings


class Parameters(Settings):
    """Parameters of an algorithm in params.yaml, each with bounds and a description."""


@dataclass(frozen=True)
class Look:
    """Colour, marker and line of an algorithm in figures, as matplotlib writes them."""

    color: str
    marker: str
    line: str | tuple = "-"


class LossInputs(NamedTuple):
    """The inputs of a loss. Rows are completions; groups are contiguous rows.

    Args:
        logp: (N, T) log pi of the sampled tokens, nats; carries the gradient.
        behavior_logp: (N, T) log mu of the same tokens; log pi itself on-policy.
        reference_logp: (N, T) under the model before training; log pi itself where none is needed.
        mask: (N, T) 1 where a token belongs to the completion, else 0.
        rewards: (N,).
        group_size: completions of one prompt.
        H: optimizer steps on the inference batch.
        limit: maximum number of tokens of a completion.
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
    """Base class of an algorithm. The registry has an instance of each subclass.

    `settings` has the algorithm's parameters as attributes: an instance of `parameters`.
    """

    name: ClassVar[str]  # in params.yaml and in the folders of runs
    label: ClassVar[str]  # in reports
    look: ClassVar[Look]
    # The loss: a static function, whose arguments have names of `Pass` and of `parameters`.
    loss_function: ClassVar[Callable]
    # Parameters of the objective, which a variant may change; and the section of params.yaml, if
    # it differs from them.
    parameters: ClassVar[type[Parameters] | None] = None
    section: ClassVar[type[Parameters] | None] = None
    # Parameters that have another name in `RapidConfig`.
    arguments: ClassVar[dict[str, str]] = {}
    # Published values, the defaults in `RapidConfig`; params.yaml sets all parameters.
    defaults: ClassVar[dict[str, Any]] = {}
    H: ClassVar[Literal["required", "optional", "none"]] = "optional"  # in its name
    imitates: ClassVar[bool] = False  # imitates a teacher by supervised learning; the others are RL
    scale_rewards: ClassVar[str] = "none"  # as GRPOConfig has it: "group", where the loss does so
    weighs_rewards: ClassVar[bool] = False  # advantages depend on the group's importance weights
    samples_from_a_server: ClassVar[bool] = False  # with a GPU of its own, where there are GPUs
    mean_over: ClassVar[Literal["sequence", "token"]] = "sequence"  # the loss is a mean over these
    metrics_over: ClassVar[Literal["sequence", "token"]] = (
        "sequence"  # metrics are means over these
    )

    # Parameters -----------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The key of its section in params.yaml."""
        return self.name.replace("-", "_")

    def select_objective(self, params: Any) -> Parameters | None:
        """Select the parameters of the objective from all of params.yaml."""
        return getattr(params, self.key) if self.parameters else None

    def sampling_batch(self, params: Any) -> int | None:
        """Return the completions sampled at a time; None for the whole inference batch."""
        return None

    def config_error(self, params: Any, group_size: int) -> tuple[str, Any, str] | None:
        """Return a key of params.yaml, its wrong value and what is allowed; None if all is well."""
        return None

    @property
    def fields(self) -> dict[str, str]:
        """Its parameters: the name in `RapidConfig` and the name here."""
        names = self.parameters.model_fields if self.parameters else ()
        return {self.arguments.get(name, name): name for name in names}

    # Names and looks ------------------------------------------------------------------------------

    @property
    def name_pattern(self) -> str:
        """A regular expression that matches its names without changes."""
        h = {"required": "-H[1-9][0-9]*", "optional": "(-H[1-9][0-9]*)?", "none": ""}
        return self.name + h[self.H]

    def at(self, h: int) -> str:
        """Return the algorithm's name with this H."""
        return f"{self.name}-H{h}"

    def named(self, name: str) -> bool:
        """Return whether a name is of this algorithm, with any H and changes."""
        return name.split(",")[0].partition("-H")[0] == self.name

    def get_look(self, h: int) -> Look:
        """Return the look with this H: the same colour, another marker and line per power of 2."""
        if h == 1:
            return self.look
        number = h.bit_length()
        return Look(self.look.color, "vP*X<>"[number % 6], (0, (5, *(1, 1) * (number % 3), 1)))

    @property
    def hyperparameter_rows(self) -> dict[str, str]:
        """Rows of the table of hyperparameters: the title, and the key in a run's spec."""
        fields = self.parameters.model_fields.items() if self.parameters else ()
        return {field.title: f"objective.{name}" for name, field in fields if field.title}

    # Training -------------------------------------------------------------------------------------

    def rounds(self, parameters: Any) -> int:
        """Return the rounds of sampling. Each after the first replaces groups of equal rewards."""
        return 1

    def build_reward_functions(
        self, parameters: Any, limit: int, reward: Callable
    ) -> list[Callable]:
        """Return the reward functions. A completion's reward is the sum of their values.

        Args:
            limit: maximum number of tokens of a completion.
            reward: the grader's reward function.
        """
        return [reward]

    def gradient_groups(self, settings: Any, on_policy: bool) -> Groups:
        """Return the kind of groups that may have a gradient. The others are skipped.

        Args:
            on_policy: the completions were sampled by the present policy.
        """
        return "all"

    def have_gradient(
        self, rewards: Tensor, group_size: int, settings: Any, *, on_policy: bool
    ) -> Tensor:
        """Return for each group whether its gradient may differ from zero. (N,) -> (K,) bool"""
        return active_groups(self.gradient_groups(settings, on_policy), rewards, group_size)

    def compares_weights(self, settings: Any) -> bool:
        """Return whether a completion's gradient depends on importance weights of its group."""
        return False

    def advantages(self, settings: Any, rewards: Tensor, group_size: int) -> Tensor:
        """Return the on-policy advantages, for the table of completions. (N,) -> (N,)

        By default they are rewards minus their group's mean, divided by the group's standard
        deviation if `scale_rewards` is "group".
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
    """An algorithm without a gradient in groups of equal rewards, whose advantages are 0."""

    def gradient_groups(self, settings: Any, on_policy: bool) -> Groups:
        return "unequal"
