"""Path auto-encoder: two short vectors from a resampled path, one of its shape and one of its profile.

In go paths of P points, shape [n, P, 2] and profile [n, P] (a speed, a height: any number along the way); out come
two vectors of a few numbers each, from which the path can be drawn again. Self-supervised, fitted on training
paths only. It knows nothing of what the points mean.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from ustad.progress import track
from ustad.tables import DataError

BATCH = 256


class AutoEncoder(nn.Module):
    """Rows of K numbers through S numbers and back: a linear path beside a small nonlinear one.

    It begins as the principal components of the training rows and then learns what straight lines cannot say.
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, inputs: int, size: int, hidden: int = 64) -> None:
        super().__init__()
        self.inputs, self.size, self.hidden = inputs, size, hidden
        self.register_buffer("centre", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(()))
        self.encode_linear, self.decode_linear = nn.Linear(inputs, size), nn.Linear(size, inputs)
        self.encode_rest = nn.Sequential(nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, size))
        self.decode_rest = nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, inputs))

    def encode(self, rows: Tensor) -> Tensor:
        """[n, K] -> [n, S]."""
        rows = (rows - self.centre) / self.scale
        return self.encode_linear(rows) + self.encode_rest(rows)

    def decode(self, code: Tensor) -> Tensor:
        """[n, S] -> [n, K]."""
        return (self.decode_linear(code) + self.decode_rest(code)) * self.scale + self.centre

    @torch.no_grad()
    def start(self, rows: Tensor) -> None:
        """Centre, scale and principal components of training rows; the nonlinear part begins at nothing."""
        self.centre.copy_(rows.mean(dim=0))
        spread = (rows - self.centre).pow(2).mean().sqrt()
        self.scale.copy_(spread if spread > 1e-9 else torch.ones(()))
        plain = (rows - self.centre) / self.scale
        _, _, components = torch.linalg.svd(plain.T @ plain / len(plain))
        rank = min(self.size, self.inputs)
        linear = [*self.encode_linear.parameters(), *self.decode_linear.parameters()]
        for parameter in (
            *linear,
            *list(self.encode_rest.parameters())[-2:],
            *list(self.decode_rest.parameters())[-2:],
        ):
            parameter.zero_()
        self.encode_linear.weight[:rank] = components[:rank]
        self.decode_linear.weight[:, :rank] = components[:rank].T


class PathEncoder:
    """Two fitted auto-encoders, one for shapes and one for profiles."""

    def __init__(self, shape: AutoEncoder, profile: AutoEncoder) -> None:
        self.shape, self.profile = shape.eval(), profile.eval()

    @property
    def points(self) -> int:
        """P, the number of points that every path is resampled to."""
        return self.profile.inputs

    @property
    def size(self) -> int:
        return self.shape.size

    def encode(self, shape: np.ndarray, profile: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Paths [n, P, 2] and [n, P] to vectors: float32 [n, size] each."""
        self._check(shape, profile)
        return _run(self.shape.encode, shape.reshape(len(shape), -1)), _run(self.profile.encode, profile)

    def reconstruct(self, shape: np.ndarray, profile: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is left of the paths after being squeezed through the vectors; the same shapes as given."""
        codes = self.encode(shape, profile)
        return _run(self.shape.decode, codes[0]).reshape(shape.shape), _run(self.profile.decode, codes[1])

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors for a safetensors file; their shapes say all that is needed to build it again."""
        parts = {"shape": self.shape, "profile": self.profile}
        return {f"{name}.{k}": v.detach().cpu() for name, part in parts.items() for k, v in part.state_dict().items()}

    @classmethod
    def from_state_dict(cls, state: dict[str, Tensor]) -> PathEncoder:
        parts = []
        for name in ("shape", "profile"):
            own = {k.removeprefix(f"{name}."): v for k, v in state.items() if k.startswith(f"{name}.")}
            if "encode_rest.0.weight" not in own:
                raise DataError(f"path encoder: the stored tensors lack its part '{name}'")
            (hidden, inputs), size = own["encode_rest.0.weight"].shape, len(own["encode_linear.bias"])
            part = AutoEncoder(inputs, size, hidden)
            part.load_state_dict(own)
            parts.append(part)
        return cls(*parts)

    def _check(self, shape: np.ndarray, profile: np.ndarray) -> None:
        shapes = (len(profile), self.points, 2), (len(shape), self.points)
        if shape.shape != shapes[0] or profile.shape != shapes[1]:
            raise DataError(f"paths: expected {self.points} points each, got {shape.shape} and {profile.shape}")


def fit_paths(
    shape: np.ndarray,
    profile: np.ndarray,
    size: int,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    epochs: int = 20,
    most: int = 100_000,
) -> PathEncoder:
    """Fit both auto-encoders on training paths (a seeded sample of at most `most`): [n, P, 2] and [n, P]."""
    if len(shape) == 0 or len(shape) != len(profile):
        raise DataError(f"paths: expected as many shapes as profiles, and some, got {len(shape)} and {len(profile)}")
    rows = np.sort(np.random.default_rng([seed, 3]).permutation(len(shape))[:most])
    return PathEncoder(
        _fit(shape[rows].reshape(len(rows), -1), size, seed, device, epochs=epochs, label="path shapes"),
        _fit(profile[rows], size, seed + 1, device, epochs=epochs, label="path profiles"),
    )


def _fit(rows: np.ndarray, size: int, seed: int, device: torch.device | str, *, epochs: int, label: str) -> AutoEncoder:
    """Squared error, Adam, a learning rate that falls to nothing. The result lies on the CPU."""
    data = torch.from_numpy(np.ascontiguousarray(rows, np.float32)).to(device)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = AutoEncoder(rows.shape[1], size).to(device)
    model.start(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps = -(-len(data) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    generator = torch.Generator().manual_seed(seed)
    with track(label, epochs * steps) as advance:
        for _ in range(epochs):
            for index in torch.randperm(len(data), generator=generator).to(device).split(BATCH):
                part = data[index]
                loss = ((model.decode(model.encode(part)) - part) / model.scale).pow(2).mean()
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                advance(1)
    return model.cpu().eval()


@torch.no_grad()
def _run(function: Callable[[Tensor], Tensor], rows: np.ndarray, size: int = 65_536) -> np.ndarray:
    """A method of an auto-encoder over many rows: float32."""
    data = torch.from_numpy(np.ascontiguousarray(rows, np.float32))
    parts = [function(part) for part in data.split(size)]
    return torch.cat(parts).numpy()
