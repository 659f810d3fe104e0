"""Clusters of directions: the effect of their number, and the speed of a pass."""
