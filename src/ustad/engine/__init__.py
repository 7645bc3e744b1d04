"""The long verbs over Ray: the same functions on whole agents, on one machine or many.

`extract`, `simulate`, `score` and `train` take what their local namesakes take, a place for results on any file
system pyarrow knows, and a cluster. Importing this package does not import Ray; using it does.
"""

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "extract_job",
    "folder",
    "model",
    "score_job",
    "simulate_job",
    "train_job",
)
