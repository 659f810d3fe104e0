"""Scores, activations and reconstructions of new rows."""
