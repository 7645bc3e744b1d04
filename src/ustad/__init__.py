"""ustad: find unusual behaviour in human movement, and in any sequence of events, without labels.

>>> import ustad
>>> detector = ustad.Detector().fit("runs/demo/data")  # doctest: +SKIP
>>> scores = detector.score("runs/demo/data")  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

#: The public names and where they live; each is imported when it is first used, so that `import ustad` is quick.
_NAMES = {
    "Config": "ustad.config",
    "ConfigError": "ustad.config",
    "DataError": "ustad.tables",
    "Dataset": "ustad.dataset",
    "Detector": "ustad.detector",
    "EventSchema": "ustad.schema",
    "LiveScorer": "ustad.live.network_live",
    "Scores": "ustad.scores",
    "StayTracker": "ustad.mobility.tracker",
    "USTADDetector": "ustad.pyod_style",
    "extract_tables": "ustad.mobility.extraction",
    "open_data": "ustad.mobility.readers",
    "simulate_tables": "ustad.simulate",
}
__all__ = [
    "Config",
    "ConfigError",
    "DataError",
    "Dataset",
    "Detector",
    "EventSchema",
    "LiveScorer",
    "Scores",
    "StayTracker",
    "USTADDetector",
    "__version__",
    "extract_tables",
    "open_data",
    "simulate_tables",
]

if TYPE_CHECKING:
    from ustad.config import Config, ConfigError
    from ustad.dataset import Dataset
    from ustad.detector import Detector
    from ustad.live.network_live import LiveScorer
    from ustad.mobility.extraction import extract_tables
    from ustad.mobility.readers import open_data
    from ustad.mobility.tracker import StayTracker
    from ustad.pyod_style import USTADDetector
    from ustad.schema import EventSchema
    from ustad.scores import Scores
    from ustad.simulate import simulate_tables
    from ustad.tables import DataError


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'ustad' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
