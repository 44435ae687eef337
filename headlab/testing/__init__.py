"""For tests of headlab and of what users add to it."""
