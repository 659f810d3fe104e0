"""Infinite latent features: each row is a sum of a few features that are on or off."""
