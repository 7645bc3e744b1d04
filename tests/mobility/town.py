"""Small worlds of fixes for the tests of this room: walks between a few sites, with noise, gaps and spikes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ustad.tables import TIMESTAMP

START = 1_704_067_200_000_000  # 2024-01-01T00:00Z


def walks(
    agents: int = 4,
    hours: float = 48.0,
    step_s: float = 60.0,
    noise_m: float = 8.0,
    seed: int = 1,
    lat0: float = 52.5,
    lon0: float = 13.4,
    gaps: bool = False,
) -> pa.Table:
    """Agents who stay at one of five sites for a while and walk or ride to the next, sampled with noise."""
    rng = np.random.default_rng(seed)
    tables = [_walk(agent, hours, step_s, noise_m, rng, lat0, lon0, gaps) for agent in range(agents)]
    return pa.concat_tables(tables)


def _walk(agent: int, hours: float, step_s: float, noise_m: float, rng, lat0: float, lon0: float, gaps: bool):
    sites = rng.normal(0, 3000, (5, 2))
    n = int(hours * 3600 / step_s)
    clock = np.arange(n) * step_s + rng.uniform(-0.3, 0.3, n) * step_s
    knots_t, knots_xy, at, t = [0.0], [sites[0]], 0, 0.0
    while t < hours * 3600:
        t += rng.uniform(8, 240) * 60
        knots_t.append(t)
        knots_xy.append(sites[at])
        going = (at + rng.integers(1, 5)) % 5
        t += np.linalg.norm(sites[going] - sites[at]) / rng.uniform(1.2, 12.0)
        knots_t.append(t)
        knots_xy.append(sites[going])
        at = going
    xy = np.stack([np.interp(clock, knots_t, np.array(knots_xy)[:, i]) for i in (0, 1)], axis=1)
    xy += rng.normal(0, noise_m, xy.shape)
    keep = np.ones(n, bool)
    if gaps:
        for _ in range(4):
            begin = rng.integers(0, n)
            keep[begin : begin + int(rng.uniform(0.5, 4) * 3600 / step_s)] = False
    lat = lat0 + xy[:, 1] / 111_195.0
    lon = lon0 + xy[:, 0] / (111_195.0 * np.cos(np.radians(lat0)))
    return fixes(np.full(n, agent)[keep], START + np.round(clock[keep] * 1e6).astype(np.int64), lat[keep], lon[keep])


def fixes(agent, time_us, lat, lon, **more) -> pa.Table:
    """A fixes table of arrays; times in microseconds."""
    columns = {"agent_id": pa.array(agent), "time": pa.array(np.asarray(time_us, np.int64), TIMESTAMP)}
    lon = (np.asarray(lon, float) + 180.0) % 360.0 - 180.0
    return pa.table({**columns, "lat": pa.array(np.asarray(lat, float)), "lon": pa.array(lon), **more})


def minutes(values) -> np.ndarray:
    """Minutes after the start of the world, in microseconds."""
    return START + np.round(np.asarray(values, float) * 60e6).astype(np.int64)
