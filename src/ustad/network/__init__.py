"""The dual Transformer: tokenizer, blocks, network, heads and losses."""

from importlib.util import find_spec

from ustad.torch_device import NO_TORCH

if find_spec("torch") is None:
    raise ModuleNotFoundError(NO_TORCH, name="torch")

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "blocks",
    "dual_transformer",
    "heads",
    "inference.memory_model",
    "inference.neighbours",
    "inference.paper_network",
    "inference.sampled_terms",
    "inference.sampling",
    "inference.term_columns",
    "inference.unseen_losses",
    "inference.worker_threads",
    "live.network_step",
    "losses",
    "network_words",
    "paths",
    "tokenizer",
    "training.dual_training",
    "training.estimate",
    "training.loop",
    "training.masked_step",
    "training.masked_task",
    "training.memory_task",
    "training.optimise",
    "training.process_group",
    "training.task",
)
