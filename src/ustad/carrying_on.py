"""Whether a model can be carried on from: its networks have one shape, its encoder one kind of events.

In: what is asked for and what the model has. A setting or a schema that does not fit is an error that names it.
"""

from __future__ import annotations

from ustad.config import Config, ConfigError
from ustad.schema import EventSchema
from ustad.tables import DataError

#: Settings that make the shape of the dual network, or what its inputs mean.
SHAPE = (
    *(("model", n) for n in ("width", "event_blocks", "heads", "aleatoric", "trips", "log_duration", "ends_seen")),
    ("window", "max_events"),
)


def check_shape(config: Config, base: Config) -> None:
    """A network can be carried on with only in the shape it has."""
    for section, name in SHAPE:
        value, there = (getattr(getattr(one, section), name) for one in (config, base))
        if value != there:
            raise ConfigError(
                f"{section}.{name} is {there} in the model to carry on from and cannot become {value}; leave it as it "
                "is, or train anew without that model"
            )


def check_same_events(schema: EventSchema, base: EventSchema) -> None:
    """The encoder is that of the model carried on from: the features must be the same."""
    new, old = ({(f.name, f.kind, f.source) for f in s.features} for s in (schema, base))
    if (schema.entity, schema.time) != (base.entity, base.time) or new != old:
        names = ", ".join(sorted({name for name, *_ in new ^ old})) or "entity or time"
        raise DataError(f"the model to carry on from was trained with another schema (different: {names}); train anew")
