"""How long a phone waits for its answer: 1,000 devices, each with a key of its own, against a service on this machine.

    python benchmarks/devices.py          under two minutes; writes benchmarks/results/devices.json, or into --out

Each device sends every ten seconds, at its own moment and in the protocol of its app: OwnTracks, Overland (five
fixes), GPSLogger or the Traccar client. A request is timed from the moment when it was due, so waiting counts too.
First the requests come over a few connections that stay open, as a proxy with TLS makes them; then each opens
its own. The model scores by habits. Every fifth device leaves a place meanwhile, so that stays are scored too.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from measured import write_result
from service import RESULTS, Server, machine, make_model
from service_tables import DEVICE_GOALS, asked, judged
from ustad.page.store import Store
from ustad.service.keys import create_key

DEVICES = 1000
EVERY_S = 10.0  # of each device
STEP_S = 300  # between two of its fixes, by their own times: stays come to an end more often than in life
FIXES_AT_A_PLACE = 30
POOL = 32  # connections of a proxy
FIRST = 1_709_510_400  # 2024-03-04 in UTC


@dataclass
class Device:
    """A phone: its key, its app, and how far it has come."""

    number: int
    key: str
    sent: int = 0

    def request(self, address: str) -> bytes:
        app = (_owntracks, _overland, _gpslogger, _osmand)[self.number % 4]
        return app(self, address)

    def fix(self) -> tuple[int, float, float]:
        """The next one: seconds, latitude, longitude."""
        turn = self.sent + 7 * self.number
        self.sent += 1
        place = turn // FIXES_AT_A_PLACE % 3
        return FIRST + STEP_S * self.sent, 60.0 + 1e-3 * (self.number % 100) + 0.05 * place, 25.0 + 0.05 * place


def _owntracks(device: Device, address: str) -> bytes:
    seconds, lat, lon = device.fix()
    message = {"_type": "location", "acc": 12, "batt": 64, "lat": lat, "lon": lon, "tid": "ab", "tst": seconds}
    key = base64.b64encode(f"phone:{device.key}".encode()).decode()
    return _post("/device/owntracks", address, f"Basic {key}", json.dumps(message).encode())


def _overland(device: Device, address: str) -> bytes:
    features = [
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [lon, lat]},
         "properties": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)), "speed": 0,
                        "horizontal_accuracy": 12, "battery_level": 0.6, "motion": ["stationary"], "wifi": ""}}
        for seconds, lat, lon in (device.fix() for _ in range(5))
    ]  # fmt: skip
    return _post("/device/overland", address, f"Bearer {device.key}", json.dumps({"locations": features}).encode())


def _gpslogger(device: Device, address: str) -> bytes:
    seconds, lat, lon = device.fix()
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))
    path = f"/device/gpslogger?lat={lat}&lon={lon}&time={moment}&acc=12.5&batt=57.0"
    return f"GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {device.key}\r\n\r\n".encode()


def _osmand(device: Device, address: str) -> bytes:
    seconds, lat, lon = device.fix()
    path = f"/device/osmand/{device.key}?id=1&timestamp={seconds}&lat={lat}&lon={lon}&accuracy=12.5&batt=57.0"
    return f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n".encode()


def _post(path: str, address: str, key: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {key}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


# ------------------------------------------------------------------------------------------------- the load
@dataclass
class Load:
    """Requests that come when they are due, whatever became of those before, and how long each took."""

    address: str
    pooled: bool
    took: list[float] = field(default_factory=list)
    failed: int = 0

    async def run(self, devices: list[Device], seconds: float) -> dict[str, float]:
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        for _ in range(POOL if self.pooled else 0):
            self._free.put_nowait(await self._connect())
        began, tasks = time.perf_counter() + 0.1, []
        for due, device in schedule(devices, seconds):
            await asyncio.sleep(max(0.0, began + due - time.perf_counter()))
            tasks.append(asyncio.create_task(self._try(device, began + due)))
        await asyncio.gather(*tasks)
        while not self._free.empty():
            self._free.get_nowait()[1].close()
        took = 1e3 * np.array(self.took)
        return {
            "requests": len(took), "requests_per_s": len(took) / seconds, "p50_ms": float(np.median(took)),
            "p99_ms": float(np.quantile(took, 0.99)), "longest_ms": float(took.max()), "failed": self.failed,
        }  # fmt: skip

    async def _try(self, device: Device, due: float) -> None:
        try:
            await self._send(device, due)
        except (OSError, asyncio.IncompleteReadError):  # a service that cannot keep up closes connections
            self.failed += 1

    async def _send(self, device: Device, due: float) -> None:
        reader, writer = await self._free.get() if self.pooled else await self._connect()
        writer.write(device.request(self.address))
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(int(length.partition(b":")[2]))
        self.took.append(time.perf_counter() - due)
        self.failed += not head.startswith(b"HTTP/1.1 200")
        if self.pooled:
            self._free.put_nowait((reader, writer))
        else:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.address.split(":")
        return await asyncio.open_connection(host, int(port))


def schedule(devices: list[Device], seconds: float) -> Iterator[tuple[float, Device]]:
    """When who sends: each device at its own moment of every ten seconds."""
    offsets = np.random.default_rng(0).uniform(0, EVERY_S, len(devices))
    order = np.argsort(offsets)
    turns = round(seconds / EVERY_S)
    return ((turn * EVERY_S + offsets[i], devices[i]) for turn in range(turns) for i in order)


def measure(seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        make_model(place / "model", 60, "cpu", "quick")
        store = Store(f"sqlite:///{place / 'store.db'}")
        devices = [Device(i, create_key(store, f"phone {i}", [], agent=f"agent {i}")) for i in range(DEVICES)]
        reader = create_key(store, "reader", ["read"])
        store.close()
        server = Server(place / "model", place / "store.db", "--proxy-headers", "127.0.0.1")
        try:
            address = server.url.removeprefix("http://")
            asyncio.run(Load(address, pooled=True).run(devices, EVERY_S))  # every device is known, all is loaded
            result = {
                "through a proxy": loaded(server, lambda: Load(address, pooled=True).run(devices, seconds)),
                "a connection each": loaded(server, lambda: Load(address, pooled=False).run(devices, seconds)),
            }
            if not any(figures["failed"] for figures in result.values()):
                check_stored(server.url, reader, devices)
        finally:
            server.stop()
        return result


def loaded(server: Server, run: Callable[[], Any]) -> dict[str, float]:
    """The figures of a load, with the processor time that the server took for each request."""
    before = server.cpu_seconds()
    figures = asyncio.run(run())
    return {**figures, "server_cpu_ms": 1e3 * (server.cpu_seconds() - before) / figures["requests"]}


def check_stored(url: str, key: str, devices: list[Device]) -> None:
    """Every fix that was acknowledged is in the store."""
    rows = httpx.get(f"{url}/v1/devices?limit=1000", headers={"Authorization": f"Bearer {key}"}, timeout=60).json()
    stored = {row["agent_id"]: row["n_fixes"] + row["n_left_out"] for row in rows["devices"]}
    if stored != {f"agent {device.number}": device.sent for device in devices}:
        raise RuntimeError("not every fix that was sent is in the store")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of load, each way")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    result = measure(given.seconds)
    for way, figures in result.items():
        for figure, value in figures.items():
            goal = DEVICE_GOALS.get((way, figure))
            print(f"{way:<20}{figure:<18}{value:>10,.1f}   {asked(goal)} {judged(value, goal)}")
    given.out.mkdir(parents=True, exist_ok=True)
    content = {"devices": DEVICES, "every_s": EVERY_S, **result, "machine": machine()}
    write_result(given.out / "devices.json", content)


if __name__ == "__main__":
    main()
