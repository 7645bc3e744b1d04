"""Other detectors under the same protocol: `make("visit-rate", schema)`, or `REGISTRY` for their names."""

from ustad.lab.baselines.protocol import REGISTRY, Abilities, DetectorProtocol, Scores, describe, find, make

__all__ = ["REGISTRY", "Abilities", "DetectorProtocol", "Scores", "describe", "find", "make"]
