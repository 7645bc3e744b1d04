"""How unusual a value is for its entity: amounts, devices, pauses, whatever a schema scores that habits do not see."""

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = ("value_features", "value_source")
