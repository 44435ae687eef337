"""Texts that labels bring along because ordinary ones do not show what they ask for."""
