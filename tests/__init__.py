"""The tests of headlab."""
