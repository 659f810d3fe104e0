"""Priors over sets of components; each is a NumPyro distribution."""
