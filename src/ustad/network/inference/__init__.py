"""The network asked: samples, embeddings, neighbours, in the fewest steps that give the same numbers."""
