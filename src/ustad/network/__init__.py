"""The dual Transformer: tokenizer, blocks, network, heads and losses."""

from importlib.util import find_spec

from ustad.torch_device import NO_TORCH

if find_spec("torch") is None:
    raise ModuleNotFoundError(NO_TORCH, name="torch")

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "dual_transformer",
    "inference.memory_model",
    "inference.neighbours",
    "inference.sampling",
    "inference.term_columns",
    "paths",
    "training.estimate",
    "training.loop",
    "training.masked_task",
    "training.task",
)
