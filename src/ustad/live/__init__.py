"""One event at a time, from the same sources; what is held of an entity in bytes."""
