"""The optimiser of a run, its learning rate over time, and how the hardware is used."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from ustad.config import TrainingConfig

#: Windows of a run from which compiling pays: below it an H200 is done before the compiler is.
COMPILE_FROM = 100_000_000


def make_optimizer(network: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Adam with L2 in the gradient, as the paper's, or AdamW; all parameters updated in one kernel."""
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)


def learning_rate(config: TrainingConfig, step: int, total: int) -> float:
    """Linear warm-up, then constant or half a cosine down to zero at step `total`."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / (config.warmup_steps + 1)
    if config.schedule == "constant":
        return config.learning_rate
    share = (step - config.warmup_steps) / max(total - config.warmup_steps, 1)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


def step_seed(seed: int, step: int) -> int:
    """The seed of one step's masks, dropout and noise, the same whether or not the run was interrupted before."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)


def use_bf16(config: TrainingConfig, device: torch.device) -> bool:
    if config.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return config.precision == "bf16"


def use_compile(config: TrainingConfig, device: torch.device, windows: int) -> bool:
    """Compiling makes a step about twice as fast on a GPU and costs about half a minute per window length.

    `auto` compiles where twenty epochs are long enough to pay for that.
    """
    if config.compile == "auto":
        return device.type == "cuda" and windows * min(config.epochs, 20) >= COMPILE_FROM
    return config.compile == "on"
