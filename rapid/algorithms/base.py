"""`Algorithm`, the base class of the algorithms, and the classes that its members use."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, Literal, NamedTuple

from rapid.algorithms.groups import GroupKind, Tensor, active_groups, group_mean, standardize
from rapid.settings import Settings


class Parameters(Settings):
    """Base class of the parameters of an algorithm. The fields have bounds and descriptions."""


@dataclass(frozen=True)
class PlotStyle:
    """Colour, marker and line style of an algorithm in figures, in matplotlib's notation."""

    color: str
    marker: str
    line: str | tuple = "-"


class LossInputs(NamedTuple):
    """The inputs of a loss. Each row is a completion; groups are contiguous rows.

    A loss takes those that it needs, by name. Losses that use groups raise ValueError if N is not a
    whole number of groups.

    Args:
        logp: (N, T) log-probabilities of the sampled tokens under the policy pi, nats; carries the
            gradient.
        behavior_logp: (N, T) log-probabilities of the same tokens under the behaviour policy mu,
            which sampled them. On-policy it equals `logp`.
        reference_logp: (N, T) log-probabilities of the same tokens under the model before training.
            Without a KL term it equals `logp`.
        mask: (N, T) 1 where a token belongs to the completion, else 0.
        rewards: (N,) R_n.
        group_size: number of completions of each prompt.
        H: number of optimizer steps on an inference batch (the completions that are sampled
            together). If the batch is used more than once (`reuse`), all of these steps count.
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


# Former names of members that subclasses define, with the present names. The former names still
# work, with a warning.
FORMER_NAMES = {
    "look": "plot_style",
    "get_look": "get_plot_style",
    "H": "h_in_name",
    "arguments": "config_field_names",
    "imitates": "is_supervised",
    "weighs_rewards": "has_weighted_baseline",
    "samples_from_a_server": "uses_vllm_server",
    "select_objective": "get_loss_parameters",
    "sampling_batch": "get_sampling_batch_size",
    "config_error": "find_config_error",
    "rounds": "get_sampling_rounds",
    "gradient_groups": "get_gradient_group_kind",
    "compares_weights": "depends_on_group_weights",
}


class Algorithm:
    """Base class of an algorithm. The registry has an instance of each subclass.

    `parameters` is the class of the loss's parameters. In methods, `settings` is an instance of
    `parameters`, and `params` are all parameters of params.yaml.
    """

    name: ClassVar[str]  # in params.yaml and in the folders of runs
    label: ClassVar[str]  # in reports
    plot_style: ClassVar[PlotStyle]
    # The loss: a static function. Its arguments are fields of `LossInputs` or of `parameters`, and
    # are passed by name. A subclass with another argument raises TypeError when it is defined.
    loss_function: ClassVar[Callable]
    # The class of the loss's parameters, which a variant of the algorithm may change.
    parameters: ClassVar[type[Parameters] | None] = None
    # The class of the algorithm's section in params.yaml, if it is not `parameters`.
    section: ClassVar[type[Parameters] | None] = None
    # For each parameter that has another name in `RapidConfig`: the name of its field there.
    config_field_names: ClassVar[dict[str, str]] = {}
    # Defaults of parameters in `RapidConfig`: published values. params.yaml has no such defaults.
    defaults: ClassVar[dict[str, Any]] = {}
    # Whether the algorithm's name contains H, the optimizer steps per inference batch: NAME-H4.
    h_in_name: ClassVar[Literal["required", "optional", "none"]] = "optional"
    is_supervised: ClassVar[bool] = False  # learns from demonstrations, without RL
    scale_rewards: ClassVar[str] = "none"  # as in GRPOConfig: "group" divides advantages by std
    has_weighted_baseline: ClassVar[bool] = False  # the baseline has importance weights
    # Whether the learning rate of a step depends on its metrics (`step_scale`). Then groups without
    # a gradient are not skipped, because a step's metrics are means over all of its completions.
    scales_steps: ClassVar[bool] = False
    # Whether a vLLM server on a separate GPU samples, if `compute` in params.yaml has
    # `sampler: vllm` and `device: gpu`.
    uses_vllm_server: ClassVar[bool] = False
    # Whether the loss and the metrics are means over completions ("sequence") or over tokens.
    mean_over: ClassVar[Literal["sequence", "token"]] = "sequence"
    metrics_over: ClassVar[Literal["sequence", "token"]] = "sequence"

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for former, name in FORMER_NAMES.items():
            if former in vars(cls):
                warnings.warn(
                    f"{cls.__name__}.{former} is now called {name}: rename it",
                    FutureWarning,
                    stacklevel=2,
                )
                setattr(cls, name, vars(cls)[former])
        cls._check_arguments_of_loss()

    @classmethod
    def _check_arguments_of_loss(cls) -> None:
        """Raise TypeError if the loss function has an argument for which there is no value."""
        parameters = [*cls.parameters.model_fields] if cls.parameters else []
        arguments = signature(cls.loss_function).parameters if hasattr(cls, "loss_function") else ()
        for name in arguments:
            if name not in (*LossInputs._fields, *parameters):
                raise TypeError(
                    f"{cls.__name__}.loss_function has the argument {name!r}, which has no value: "
                    "rename or remove it, or add a parameter of this name. Allowed are "
                    f"{', '.join(LossInputs._fields)} (the fields of LossInputs) and "
                    f"{', '.join(parameters) or 'no others'} (the fields of `parameters`)"
                )

    # Parameters -----------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The key of the algorithm's section in params.yaml."""
        return self.name.replace("-", "_")

    def get_loss_parameters(self, params: Any) -> Parameters | None:
        """Return the parameters of the loss that params.yaml sets."""
        return getattr(params, self.key) if self.parameters else None

    def get_sampling_batch_size(self, params: Any) -> int | None:
        """Return how many completions are sampled at a time; None is the whole inference batch."""
        return None

    def find_config_error(self, params: Any, group_size: int) -> tuple[str, Any, str] | None:
        """Return an invalid key of params.yaml, its value and the reason; None if all are valid."""
        return None

    @property
    def parameters_by_config_field(self) -> dict[str, str]:
        """The names of the loss's parameters, by the names of their fields in `RapidConfig`."""
        names = self.parameters.model_fields if self.parameters else ()
        return {self.config_field_names.get(name, name): name for name in names}

    # Names and plot styles ------------------------------------------------------------------------

    @property
    def name_pattern(self) -> str:
        """A regular expression for the algorithm's names with H, without changed parameters."""
        h = {"required": "-H[1-9][0-9]*", "optional": "(-H[1-9][0-9]*)?", "none": ""}
        return self.name + h[self.h_in_name]

    def format_name(self, h: int) -> str:
        """Return the algorithm's name with this H, such as rapid-H4."""
        return f"{self.name}-H{h}"

    def matches_name(self, name: str) -> bool:
        """Return whether a name is this algorithm's, with any H and any changed parameters."""
        return name.split(",")[0].partition("-H")[0] == self.name

    def get_plot_style(self, h: int) -> PlotStyle:
        """Return the style of a line with this H: marker and dashes depend on log2 of H."""
        if h == 1:
            return self.plot_style
        number = h.bit_length()  # 2 for H = 2 and 3, 3 for H = 4 to 7, ...
        dashes = (0, (5, *(1, 1) * (number % 3), 1))
        return PlotStyle(self.plot_style.color, "vP*X<>"[number % 6], dashes)

    @property
    def hyperparameter_rows(self) -> dict[str, str]:
        """Rows of the report's table of hyperparameters: the key in a run's spec, by title."""
        fields = self.parameters.model_fields.items() if self.parameters else ()
        return {field.title: f"objective.{name}" for name, field in fields if field.title}

    # Training -------------------------------------------------------------------------------------

    def get_sampling_rounds(self, settings: Any) -> int:
        """Return the most rounds of sampling per inference batch; above 1 with dynamic sampling.

        Each round after the first replaces groups whose rewards are all equal.
        """
        return 1

    def build_reward_functions(self, settings: Any, limit: int, reward: Callable) -> list[Callable]:
        """Return the reward functions. A completion's reward is the sum of their values.

        Args:
            limit: maximum number of tokens of a completion.
            reward: the grader's reward function.
        """
        return [reward]

    def get_gradient_group_kind(self, settings: Any, on_policy: bool) -> GroupKind:
        """Return the kind of groups that may have a gradient. Other groups are skipped.

        Args:
            on_policy: whether the completions were sampled from the present policy.
        """
        return "all"

    def find_groups_with_gradient(
        self, rewards: Tensor, group_size: int, settings: Any, *, on_policy: bool
    ) -> Tensor:
        """Return for each group whether its gradient may differ from zero. (N,) -> (K,) bool"""
        return active_groups(self.get_gradient_group_kind(settings, on_policy), rewards, group_size)

    def depends_on_group_weights(self, settings: Any) -> bool:
        """Return whether gradients depend on the importance weights of others in the group."""
        return False

    def step_scale(self, means: dict[str, float]) -> float:
        """Return the factor of the learning rate of an optimizer step, if `scales_steps` is True.

        Args:
            means: the metrics of `loss`, as means over the completions of the step.
        """
        return 1.0

    def advantages(self, settings: Any, rewards: Tensor, group_size: int) -> Tensor:
        """Return the on-policy advantages, for the logged table of completions. (N,) -> (N,)

        Training does not call this method: to train with other advantages, change `loss_function`.

        By default they are the rewards minus the group's mean, divided by the group's standard
        deviation if `scale_rewards` is "group".
        """
        if self.scale_rewards == "group":
            return standardize(rewards, group_size)
        return rewards - group_mean(rewards, group_size)

    def loss(self, settings: Any, tensors: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss and metrics, 0-d each: means over `mean_over` and `metrics_over`."""
        arguments = {
            name: getattr(tensors if name in LossInputs._fields else settings, name)
            for name in signature(self.loss_function).parameters
        }
        return self.loss_function(**arguments)


class GroupRelative(Algorithm):
    """An algorithm whose advantages and gradient are 0 in groups of equal rewards."""

    def get_gradient_group_kind(self, settings: Any, on_policy: bool) -> GroupKind:
        return "unequal"


def __getattr__(name: str) -> Any:
    if name == "Look":
        warnings.warn("Look is now called PlotStyle", FutureWarning, stacklevel=2)
        return PlotStyle
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
