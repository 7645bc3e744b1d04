"""Other detectors under the same protocol."""
