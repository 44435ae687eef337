"""Find a model's attention, prove that it is all there, and get hold of it."""
