"""A run folder and all that lies in it."""
