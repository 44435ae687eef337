"""The translation students of Firefox as torch modules."""
