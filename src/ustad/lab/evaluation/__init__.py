"""Honest figures: metrics, experiments and their pictures."""
