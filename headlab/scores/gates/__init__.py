"""Gates that are learned: their distributions and their training."""
