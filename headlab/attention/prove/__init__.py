"""What is shown of a model before anything is said about its heads: found by a probe, or declared, and proven."""
