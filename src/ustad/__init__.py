"""ustad: find unusual behaviour in human movement, and in any sequence of events, without labels."""

__version__ = "0.1.0"
