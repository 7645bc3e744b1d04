"""The optimiser of a run, its learning rate over time, and how the hardware is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ustad.config import TrainingConfig

P = ParamSpec("P")
R = TypeVar("R")
#: Windows of a run from which compiling pays: below it an H200 is done before the compiler is.
COMPILE_FROM = 40_000_000


def _plain(method: Any) -> Any:
    """A method of torch's optimisers without what prepares it for torch.compile, whose import takes seconds."""
    return getattr(method, "__wrapped__", method)


class _Adam(torch.optim.Adam):
    """torch's, for use under `no_grad`."""

    add_param_group = _plain(torch.optim.Optimizer.add_param_group)
    zero_grad = _plain(torch.optim.Optimizer.zero_grad)
    step = _plain(torch.optim.Adam.step)


class _AdamW(torch.optim.AdamW):
    """torch's, for use under `no_grad`."""

    add_param_group = _plain(torch.optim.Optimizer.add_param_group)
    zero_grad = _plain(torch.optim.Optimizer.zero_grad)
    step = _plain(torch.optim.AdamW.step)


def make_optimizer(network: nn.Module, config: TrainingConfig, for_recording: bool = False) -> torch.optim.Optimizer:
    """Adam with L2 in the gradient, as the paper's, or AdamW; all parameters of one gain updated in one kernel.

    A network with `gains` names the parameters that learn so many times as fast as the rest. Where steps are
    recorded, the learning rates lie on the device, so that a replayed step reads the current ones.
    """
    kind = _Adam if config.optimizer == "adam" else _AdamW
    gains: dict[str, float] = network.gains() if hasattr(network, "gains") else {}  # type: ignore[operator]  # a method
    members: dict[float, list[nn.Parameter]] = {1.0: []}
    for name, parameter in network.named_parameters():
        members.setdefault(gains.get(name, 1.0), []).append(parameter)
    options: dict[str, Any] = {"weight_decay": config.weight_decay, "fused": True, "capturable": for_recording}
    groups = [{"params": parameters, "gain": gain} for gain, parameters in members.items()]
    optimizer = kind(groups, lr=config.learning_rate, **options)
    for group in optimizer.param_groups:
        rate = config.learning_rate * group["gain"]
        group["lr"] = torch.tensor(rate, device=group["params"][0].device) if for_recording else rate
    return optimizer


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The rate of this step; each group of parameters learns as many times as fast as its gain says."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["gain"])
        else:
            group["lr"] = rate * group["gain"]


@torch.no_grad()
def take_step(optimizer: torch.optim.Optimizer) -> None:
    """One step of the optimiser."""
    optimizer.step()


def learning_rate(config: TrainingConfig, step: int, total: int, losses: Sequence[float] = ()) -> float:
    """Linear warm-up, then half a cosine down to zero at step `total`, or halved where validation stands still.

    `losses` are of validation, by epoch: the rate follows from them alone, so a resumed run has the same.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / (config.warmup_steps + 1)
    if config.schedule == "plateau":
        return config.learning_rate * 0.5 ** count_plateaus(losses, max(1, config.patience // 3))
    share = (step - config.warmup_steps) / max(total - config.warmup_steps, 1)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


def count_plateaus(losses: Sequence[float], wait: int) -> int:
    """How often `wait` epochs have gone by without a better loss, since the best one or the last such time."""
    best, since, count = math.inf, 0, 0
    for loss in losses:
        best, since = (loss, 0) if loss < best else (best, since + 1)
        if since == wait:
            count, since = count + 1, 0
    return count


def step_seed(seed: int, step: int) -> int:
    """The seed of one step's masks, dropout and noise, the same whether or not the run was interrupted before."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)


def seed_generators(device: torch.device, seed: int) -> None:
    """What `torch.manual_seed` does for the CPU and this device. That looks at every kind of device there may be, which
    takes a millisecond, and steps are as short."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[_index(device)].manual_seed(seed)


@contextmanager
def keep_generators(device: torch.device) -> Iterator[None]:
    """Afterwards the generators of the CPU and this device are as they were."""
    with torch.random.fork_rng(devices=[_index(device)] if device.type == "cuda" else []):
        yield


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def use_bf16(config: TrainingConfig, device: torch.device) -> bool:
    if config.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return config.precision == "bf16"


def use_compile(config: TrainingConfig, device: torch.device, windows: int) -> bool:
    """Whether the loss is compiled: `auto` does so where twenty epochs are long enough to pay for it."""
    if config.compile == "auto":
        return device.type == "cuda" and windows * min(config.epochs, 20) >= COMPILE_FROM
    return config.compile == "on"


def compile_loss(
    loss: Callable[P, R], network: nn.Module, backend: str | Callable[..., Any] = "inductor"
) -> Callable[P, R]:
    """A loss in few kernels, forwards and backwards: the same for every window length, with the same draws as before.

    Recurrent networks stay as they are: torch has kernels of its own for them, which the compiler does not take.
    """
    if any(isinstance(module, nn.RNNBase) for module in network.modules()):
        return loss
    options: dict[str, Any] | None = {"fallback_random": True} if backend == "inductor" else None
    fast_loss = torch.compile(loss, dynamic=True, backend=backend, options=options)

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # A slice of a longer tensor would be one more kind of argument to compile for.
        return fast_loss(*(a.clone() if isinstance(a, Tensor) else a for a in args), **kwargs)  # type: ignore[arg-type]  # as many as came

    return run


def use_graphs(config: TrainingConfig, device: torch.device) -> bool:
    return config.graphs == "auto" and device.type == "cuda"
