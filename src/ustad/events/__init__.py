"""From tables of events to arrays and padded windows."""
