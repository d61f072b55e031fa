"""The regression gate of the bench: ratios to plain C, never times."""
