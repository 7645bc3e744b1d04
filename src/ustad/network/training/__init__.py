"""Fitting a network: the loop, its checkpoints, the search over settings."""
