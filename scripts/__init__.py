"""What headlab is set up, tried and measured with; run from the root of the repository."""
