"""Baselines, evaluation and experiments, for people who compare methods. Nothing else imports it."""
