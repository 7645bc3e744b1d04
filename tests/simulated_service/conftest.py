"""The simulation uses what the tests of the service are made of."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed: pip install 'ustad[service]'")

sys.path.insert(0, str(Path(__file__).parents[1] / "service"))
