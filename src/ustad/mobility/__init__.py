"""From raw GPS to stays, trips, gaps and places."""
