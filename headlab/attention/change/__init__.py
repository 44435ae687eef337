"""Alter what heads do: gates, ablations, donors, gradients, replay."""
