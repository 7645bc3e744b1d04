"""When memory is full: what is said, and how work goes on in smaller pieces."""

from __future__ import annotations

import gc

import torch

#: What torch says where a CPU's memory is full; a GPU has a kind of error of its own.
_OF_A_CPU = "can't allocate memory"


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and _OF_A_CPU in str(error)
    )


def free_memory(device: torch.device) -> None:
    """Give back what a failed attempt left behind. Not within `except`, where the error still holds its tensors."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
