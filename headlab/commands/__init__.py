"""Each command as a request and a function, without printing."""
