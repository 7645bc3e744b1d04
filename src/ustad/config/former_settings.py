"""Settings as version 0.2 wrote them, in the words of today.

Some were joined, some are fixed now. A setting that asks for what still exists is read. A setting that is fixed now,
and has the fixed value, is left out with a line. Any other is refused.
"""

from __future__ import annotations

from typing import Any

from ustad import progress
from ustad.config.setting_fields import ConfigError

#: What presets were called before version 0.3.
FORMER_NAMES = {"default": "best", "fast": "quick"}
#: Settings that are fixed now, with the values they may still say. They decided how a network was trained, so that a
#: model that was trained by others is still what it was.
ONLY_TRAINING: dict[str, tuple[Any, ...]] = {
    "split.test_weeks": (4,),
    "window.past_share": (0, 0.5),
    "model.log_duration": (True, False),
    "model.ends_seen": (True, False),
    "model.variance_rate": (1,),
    "training.noise_samples": (50, 10),
    "training.warmup_steps": (0, 50, 100),
    "training.weight_decay": (1e-5,),
    "training.clip_norm": (1,),
    "training.validation_share": (0.1,),
    "training.robust": (0,),
    "training.checkpoint_minutes": (1,),
    "training.tensorboard": (False,),
    "training.graphs": ("auto", "off"),
}
#: The same of settings that decide what a network is, or what a score is: a model that was made by others is refused.
ALSO_SCORING: dict[str, tuple[Any, ...]] = {
    "model.feature_blocks": (1,),
    "model.trip_size": (16,),
    "model.places": (24,),
    "scoring.agent_score": ("max",),
    "scoring.counting": ("past",),
    "scoring.weights": ("unit",),
    "scoring.silence": (False,),
    "extraction.changes_reach_m": (0, 3000),  # `extraction.reach_m` says whether there are such phones
    "scoring.spread": ("none", "max3"),  # neighbours belong to an event's incident now
}
_UNCERTAINTY = {(True, True): "both", (True, False): "aleatoric", (False, True): "epistemic", (False, False): "none"}


def translate(settings: dict[str, Any], of_model: bool = False) -> dict[str, Any]:
    """Settings by dotted name without what is no longer there; `of_model` forgives how a network was trained."""
    today = _join(dict(settings))
    names = [name for name in today if name in ONLY_TRAINING or name in ALSO_SCORING]
    for name in names:
        values = ONLY_TRAINING.get(name) or ALSO_SCORING[name]
        if today[name] not in values and not (of_model and name in ONLY_TRAINING):
            advice = "train the model again" if of_model else "leave it out"
            raise ConfigError(f"{name} is {values[0]} in this version and cannot be {today[name]!r}: {advice}")
        del today[name]
    if names:
        progress.say(f"settings of version 0.2 that are fixed now were left out: {', '.join(names)}")
    return today


def _join(settings: dict[str, Any]) -> dict[str, Any]:
    """Where several settings became one."""
    method = settings.pop("scoring.method", None)
    if method == "habits" and settings.get("model.network", "dual") == "dual":
        settings["model.network"] = "none"
    switches = [settings.pop(f"model.{name}", None) for name in ("aleatoric", "epistemic")]
    if any(switch is not None for switch in switches):
        aleatoric, epistemic = (switch is None or bool(switch) for switch in switches)
        settings["model.uncertainty"] = _UNCERTAINTY[aleatoric, epistemic]
    optimizer, schedule = (settings.pop(f"training.{name}", None) for name in ("optimizer", "schedule"))
    if optimizer is not None or schedule is not None:
        settings["training.recipe"] = "cosine" if "adamw" in (optimizer, schedule) or schedule == "cosine" else "paper"
    precision, compiling = (settings.pop(f"training.{name}", None) for name in ("precision", "compile"))
    if precision is not None or compiling is not None:
        settings["training.acceleration"] = "off" if precision == "fp32" or compiling == "off" else "auto"
    return settings
