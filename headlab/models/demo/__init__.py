"""The demo checkpoints and the small texts that come with the package."""
