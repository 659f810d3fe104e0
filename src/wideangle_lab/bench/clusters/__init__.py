"""Clusters of directions: must one choose their number, and how fast is a pass."""
