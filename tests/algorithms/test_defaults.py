"""The default values of parameters that params.yaml need not set."""

from rapid.algorithms import ALGORITHMS

# docs/algorithms.md names the sources: papers, their authors' scripts, or other programs.
DEFAULTS = {
    "asymre": {"shift": -0.1},
    "cispo": {"cap": 5.0},
    "dapo": {"overlong_filtering": False},
    "dppo": {"divergence": 0.2, "cap": 5.0},
    "dr-grpo": {"epsilon": 0.2},
    "dro": {"tau": 0.05},
    "geo-mask": {"low": 0.999, "high": 1.001},
    "gspo": {"clip_low": 0.0003, "clip_high": 0.0004},
    "m2po": {"tau": 0.04},
    "oapl": {"beta_value": 1.0, "beta_policy": 0.001},
    # RAPID as in its paper: without the options for ablations
    "rapid": {
        "baseline": "group",
        "weighted": True,
        "baseline_scale": 1.0,
        "positive_only": False,
        "equal_groups": "kept",
    },
    "sapo": {"temperature_pos": 1.0, "temperature_neg": 1.05},
    "sft": {
        "demonstrations": 0,
        "error_rate": 0.0,
        "checkpointing": False,
        "precision": "float32",
        "teacher_precision": "float32",
        "schedule": "constant",
    },
    "tis": {"cap": 2.0},
    "topr": {"offset": None},
    "vcpo": {"cap": 8.0},
    "vespo": {"k_pos": 2.0, "decay_pos": 3.0, "k_neg": 3.0, "decay_neg": 2.0},
}


def test_parameters_keep_their_defaults():
    defaults = {
        name: {
            field_name: field.get_default(call_default_factory=True)
            for field_name, field in algorithm.parameters.model_fields.items()
            if not field.is_required()
        }
        for name, algorithm in ALGORITHMS.items()
        if algorithm.parameters
    }
    assert {name: values for name, values in defaults.items() if values} == DEFAULTS
