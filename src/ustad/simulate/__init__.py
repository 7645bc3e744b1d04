"""Simulated cities, people and red teams, and anomalies injected into any data."""
