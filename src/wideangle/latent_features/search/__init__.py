"""Starts of the chains: features found by search."""
