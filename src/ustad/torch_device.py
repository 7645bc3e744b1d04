"""Where a network computes, and what is said where torch, which networks need, is not installed.

The preset quick trains no network: it runs without torch.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import metadata
from threading import Thread
from typing import TYPE_CHECKING

from ustad.data_error import DataError

if TYPE_CHECKING:
    import numpy as np
    import torch

NO_TORCH = "this needs a network, and networks need torch: pip install torch; the preset quick does without"


def choose_device(name: str, network: bool = True) -> torch.device:
    """auto: CUDA where there is one, else the CPU; without torch, the CPU.

    Where no network will compute, torch is not imported to find out: that takes seconds.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise DataError(f"device '{name}' is not one of auto, cpu, cuda")
    if not network and name != "cuda":
        return "cpu"  # type: ignore[return-value]
    try:
        import torch
    except ModuleNotFoundError:
        if name == "cuda":
            raise DataError(NO_TORCH) from None
        return "cpu"  # type: ignore[return-value]  # no network will compute there
    if name == "cuda" and not torch.cuda.is_available():
        raise DataError("no CUDA device is available here; use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def wake_gpu(name: str) -> None:
    """Begin to make a GPU ready, where a network will compute on one: its context and its library of products take a
    second, in which others can read files. Not for whoever records steps: a recording must be alone on its GPU."""
    Thread(target=_wake, args=(name,), daemon=True).start()


def _wake(name: str) -> None:
    with suppress(Exception):  # whoever uses the GPU says what is wrong with it
        device = choose_device(name)
        if str(device).startswith("cuda"):
            import torch

            ones = torch.ones(16, 16, dtype=torch.float16, device=device)
            torch.mm(ones, ones)


def send(values: np.ndarray, device: torch.device | str, kind: torch.dtype | None = None) -> torch.Tensor:
    """An array as a tensor on a device. A GPU fetches it from pinned memory when its turn comes: whoever sends goes on
    at once, and does not wait until the GPU has done what it was asked before."""
    import numpy as np
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(values)).to(dtype=kind)
    if torch.device(device).type != "cuda" or not tensor.numel():
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def torch_version() -> str | None:
    """The version of torch, or None where it is not installed."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
