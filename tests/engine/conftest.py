"""One small cluster for all tests of this room: two Ray nodes as processes of one machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

#: Two machines on a few busy cores: workers are not the last to be given one, nor is anybody given up for being slow.
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_worker_register_timeout_seconds": "600",
    "RAY_health_check_timeout_ms": "60000", "RAY_health_check_failure_threshold": "20",
    "RAY_gcs_rpc_server_connect_timeout_s": "60", "RAY_memory_monitor_refresh_ms": "0",
}  # fmt: skip
STORE = 80 << 20


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two nodes with three CPUs together; the driver is connected."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ustad[ray]'")
    pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'ustad[ray]'")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    made.add_node(num_cpus=2, object_store_memory=STORE)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()
