"""How a model is looked at: the only part that knows how attention runs."""
