"""An entity's history: counts, hours, places; what it asks of later events; how it moves on."""
