"""Pure functions on the unit sphere."""
