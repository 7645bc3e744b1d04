"""One HTML file that opens without a network."""
