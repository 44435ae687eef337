"""Models whose heads were set by hand, and the labels that they must carry."""
