"""Reading the data of tasks."""
