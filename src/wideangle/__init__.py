"""Diversity-promoting Bayesian latent-variable models."""

from importlib.metadata import version

__version__ = version("wideangle")

__all__ = ["__version__"]
