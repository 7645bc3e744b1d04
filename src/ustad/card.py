"""The model card: what a model was trained on, how well it predicts, what its scores are not for."""

from __future__ import annotations

from typing import Any

from ustad.config import Config
from ustad.schema import EventSchema, plural

#: Who of the validation part does what, by `model.network`.
VALIDATION = {
    "none": "all {} calibrate",
    "memory": "a quarter of the {} for early stopping, the others for calibration",
    "dual": "half of the {} for early stopping, half for calibration",
}


def card(facts: dict[str, Any], config: Config, schema: EventSchema, scores_by: str) -> str:
    """The model card: what the model was trained on, how well it predicts, and what its scores are not for. It uses the
    schema's words for entities and events."""
    entities, events = plural(schema.entity_word), plural(schema.event_word)
    area = facts.get("area")
    where = (
        f"- Area: latitude {area['lat_min']} … {area['lat_max']}, longitude {area['lon_min']} … {area['lon_max']}\n"
        if area
        else ""
    )
    versions = ", ".join(f"{k} {v}" for k, v in facts["versions"].items())
    return (
        "# Model card\n\n## Trained on\n"
        f"- {facts['entities']:,} {entities}, {facts['events']:,} {events}, {facts['first_day']} to "
        f"{facts['last_day']}\n"
        f"{where}- Time zones: {', '.join(facts['timezones'])}\n"
        f"- Validation: {facts['validation_events']:,} {events} of the days after; "
        f"{VALIDATION[config.model.network].format(entities)}\n\n"
        f"## Fit\n{_fit(facts, config, scores_by)}{_neighbours(facts, events)}"
        f"- {versions}\n\n## Use\n"
        f"Scores say what is unusual for each {schema.entity_word}, not why, and nothing about intent. They are leads "
        "for a person to look at. They must not decide about anybody on their own.\n"
    )


def _fit(facts: dict[str, Any], config: Config, scores_by: str) -> str:
    """What scores, and how its network was trained where it has one."""
    if "validation_loss" not in facts:
        return f"- {scores_by}: counts and hours of each history; no network, seed {facts['seed']}\n"
    return (
        f"- {scores_by}\n"
        f"- Masked validation loss {facts['validation_loss']:.4f} after {facts['epochs']} epochs "
        f"({facts['seconds']} s on {facts['device']})\n"
        f"- Width {config.model.width}, {config.model.event_blocks} event blocks, "
        f"{config.scoring.samples} samples, seed {facts['seed']}\n"
    )


def _neighbours(facts: dict[str, Any], events: str) -> str:
    """How neighbours are searched, and how well that was measured."""
    neighbours = facts.get("neighbours")
    if not neighbours:
        return ""
    line = f"- Neighbours among {neighbours['reference']:,} training {events}"
    if "recall" in neighbours:
        line += (
            f"; live on a CPU through {neighbours['lists']:,} lists, {neighbours['probes']} probed: "
            f"recall {neighbours['recall']:.3f}, "
            f"error of the mean distance {neighbours['error']:.2%}"
        )
    return line + "\n"
