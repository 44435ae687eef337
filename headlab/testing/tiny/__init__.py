"""A tiny model of any type that transformers knows, with random weights."""
