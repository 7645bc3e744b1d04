"""The dual Transformer: tokenizer, blocks, network, heads and losses."""
