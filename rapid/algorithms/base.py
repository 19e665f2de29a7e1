"""Base class of the algorithms. Each other file with an algorithm has a subclass."""

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
        reference_logp: (N, T) log-probabilities of the same tokens under the model before training;
            log pi itself without a KL term.
        mask: (N, T) 1 where a token belongs to the completion, else 0.
        rewards: (N,).
        group_size: completions of one prompt.
        H: optimizer steps on an inference batch, that is on completions sampled at once; with
            `reuse`, those of all its passes.
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
    # The loss: a static function. Its arguments are fields of `LossInputs` or of `parameters`, and
    # are passed by name.
    loss_function: ClassVar[Callable]
    # Parameters of the loss, which a variant of the algorithm may change.
    parameters: ClassVar[type[Parameters] | None] = None
    # The class of its section in params.yaml, if that differs from `parameters`.
    section: ClassVar[type[Parameters] | None] = None
    # For parameters that have another name in `RapidConfig`: that name.
    arguments: ClassVar[dict[str, str]] = {}
    # Published values: the defaults of `RapidConfig`. In params.yaml there are no such defaults.
    defaults: ClassVar[dict[str, Any]] = {}
    # Whether the algorithm's name contains H, the optimizer steps per inference batch: NAME-H4.
    H: ClassVar[Literal["required", "optional", "none"]] = "optional"
    imitates: ClassVar[bool] = False  # whether it is supervised learning from a teacher, not RL
    scale_rewards: ClassVar[str] = "none"  # GRPOConfig's field: "group" divides advantages by std
    weighs_rewards: ClassVar[bool] = False  # advantages depend on the group's importance weights
    # Whether the learning rate of a step depends on its metrics (`step_scale`). Then groups without
    # a gradient are run too, because the metrics of a step are means over all of its completions.
    scales_steps: ClassVar[bool] = False
    # Whether a vLLM server with a GPU of its own samples, if `compute` in params.yaml has
    # `sampler: vllm` and `device: gpu`.
    samples_from_a_server: ClassVar[bool] = False
    # Whether the loss and the metrics are means over completions ("sequence") or over tokens.
    mean_over: ClassVar[Literal["sequence", "token"]] = "sequence"
    metrics_over: ClassVar[Literal["sequence", "token"]] = "sequence"

    # Parameters -----------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The key of the algorithm's section in params.yaml."""
        return self.name.replace("-", "_")

    def select_objective(self, params: Any) -> Parameters | None:
        """Return the parameters of the loss, given all of params.yaml."""
        return getattr(params, self.key) if self.parameters else None

    def sampling_batch(self, params: Any) -> int | None:
        """Return how many completions are sampled at a time; None for the whole inference batch."""
        return None

    def config_error(self, params: Any, group_size: int) -> tuple[str, Any, str] | None:
        """Return a key of params.yaml, its invalid value and the reason; None if all are valid."""
        return None

    @property
    def fields(self) -> dict[str, str]:
        """The parameters of the loss: their names here, by their names in `RapidConfig`."""
        names = self.parameters.model_fields if self.parameters else ()
        return {self.arguments.get(name, name): name for name in names}

    # Names and looks ------------------------------------------------------------------------------

    @property
    def name_pattern(self) -> str:
        """A regular expression for the algorithm's names: with H, but not as a variant."""
        h = {"required": "-H[1-9][0-9]*", "optional": "(-H[1-9][0-9]*)?", "none": ""}
        return self.name + h[self.H]

    def at(self, h: int) -> str:
        """Return the algorithm's name with this H."""
        return f"{self.name}-H{h}"

    def named(self, name: str) -> bool:
        """Return whether a name denotes this algorithm, with any H and any changed parameters."""
        return name.split(",")[0].partition("-H")[0] == self.name

    def get_look(self, h: int) -> Look:
        """Return the look for an H: the same colour, and a marker and line by power of 2."""
        if h == 1:
            return self.look
        number = h.bit_length()  # 2 for H = 2 and 3, 3 for 4 to 7, ...
        return Look(self.look.color, "vP*X<>"[number % 6], (0, (5, *(1, 1) * (number % 3), 1)))

    @property
    def hyperparameter_rows(self) -> dict[str, str]:
        """Rows of the report's table of hyperparameters: the key in a run's spec, by row title."""
        fields = self.parameters.model_fields.items() if self.parameters else ()
        return {field.title: f"objective.{name}" for name, field in fields if field.title}

    # Training -------------------------------------------------------------------------------------

    def rounds(self, parameters: Any) -> int:
        """Return the rounds of sampling per inference batch: 1, or more with dynamic sampling.

        Each round after the first replaces groups whose rewards are all equal.
        """
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
        """Return the kind of groups that may have a gradient. Other groups are skipped.

        Args:
            settings: an instance of `parameters`.
            on_policy: whether the present policy sampled the completions.
        """
        return "all"

    def have_gradient(
        self, rewards: Tensor, group_size: int, settings: Any, *, on_policy: bool
    ) -> Tensor:
        """Return for each group whether its gradient may differ from zero. (N,) -> (K,) bool"""
        return active_groups(self.gradient_groups(settings, on_policy), rewards, group_size)

    def compares_weights(self, settings: Any) -> bool:
        """Return whether a completion's gradient depends on the weights pi / mu of its group."""
        return False

    def step_scale(self, means: dict[str, float]) -> float:
        """Return the factor of an optimizer step's learning rate, if `scales_steps`.

        Args:
            means: the metrics of `loss`, as means over the completions of the step.
        """
        return 1.0

    def advantages(self, settings: Any, rewards: Tensor, group_size: int) -> Tensor:
        """Return the on-policy advantages, for the logged table of completions. (N,) -> (N,)

        By default they are rewards minus the group's mean. If `scale_rewards` is "group" they are
        divided by the group's standard deviation.
        """
        if self.scale_rewards == "group":
            return standardized(rewards, group_size)
        return rewards - group_mean(rewards, group_size)

    def loss(self, settings: Any, tensors: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and metrics, 0-d: means over `mean_over` and over `metrics_over`."""
        arguments = {
            name: getattr(tensors if name in LossInputs._fields else settings, name)
            for name in signature(self.loss_function).parameters
        }
        return self.loss_function(**arguments)


class GroupRelative(Algorithm):
    """An algorithm whose advantages, and so its gradient, are 0 in groups of equal rewards."""

    def gradient_groups(self, settings: Any, on_policy: bool) -> Groups:
        return "unequal"
