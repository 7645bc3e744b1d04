"""The dual Transformer: tokenizer, blocks, network, heads and losses."""

from importlib.util import find_spec

from ustad.torch_device import NO_TORCH

if find_spec("torch") is None:
    raise ModuleNotFoundError(NO_TORCH, name="torch")
