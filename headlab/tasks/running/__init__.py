"""Running a task over a model."""
