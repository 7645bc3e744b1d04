"""Checkpoints: everything a run needs to go on as if it had never stopped, in one safetensors file.

Tensors (weights, best weights, the optimiser's moments) lie in the file's body, numbers and history as JSON in its
header. It is written under a temporary name and renamed, so a kill leaves either the old one or the new one.
Reading one executes nothing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ustad.config import ConfigError

FORMAT = 1


@dataclass
class Progress:
    """Where a run stands. `done` counts steps of the current epoch; sums are of that epoch too."""

    epoch: int = 0
    done: int = 0
    step: int = 0
    seconds: float = 0.0
    best_loss: float = float("inf")
    best_epoch: int = -1
    finished: bool = False
    loss_sum: float = 0.0
    field_sums: list[float] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)


def fingerprint(content: dict[str, Any]) -> str:
    """A short name of settings and data; a checkpoint of another one is refused."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def write_checkpoint(
    path: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    best: dict[str, Tensor],
    *,
    progress: Progress,
    identity: str,
) -> None:
    """One file, all or nothing."""
    tensors = {f"network.{k}": v for k, v in network.state_dict().items()}
    tensors |= {f"best.{k}": v for k, v in best.items()}
    tensors |= _optimizer_tensors(network, optimizer)
    tensors = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}
    header = {"format": str(FORMAT), "identity": identity, "progress": json.dumps(asdict(progress))}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    save_file(tensors, str(temporary), metadata=header)
    temporary.replace(path)


def read_checkpoint(
    path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, *, identity: str
) -> tuple[dict[str, Tensor], Progress]:
    """Put weights and moments back where they were; returns the best weights and where the run stood."""
    header, tensors = _read(path, device)
    if header.get("format") != str(FORMAT):
        raise ConfigError(f"{path}: a checkpoint of format {header.get('format')}, expected {FORMAT}; start afresh")
    if header.get("identity") != identity:
        raise ConfigError(
            f"{path}: the checkpoint was made with other settings or other data; "
            "train with the same ones or without --resume"
        )
    network.load_state_dict(_part(tensors, "network."))
    _restore_optimizer(network, optimizer, _part(tensors, "optimizer."))
    return _part(tensors, "best."), Progress(**json.loads(header["progress"]))


def _read(path: Path, device: torch.device) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safe_open(str(path), framework="pt", device=str(device)) as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path}: not a readable checkpoint ({str(error).splitlines()[0]})") from error


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _optimizer_tensors(network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Moments and step counts by the parameter's name and the moment's."""
    return {
        f"optimizer.{name}|{key}": value
        for name, parameter in network.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def _restore_optimizer(network: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    parameters = dict(network.named_parameters())
    optimizer.state.clear()
    for name, value in tensors.items():
        parameter, _, key = name.partition("|")
        on_device = optimizer.defaults.get("fused") or optimizer.defaults.get("capturable")
        home = parameters[parameter].device if key != "step" or on_device else torch.device("cpu")
        optimizer.state[parameters[parameter]][key] = value.to(home)
