"""Fits a user can ask for: each joins one model with one way of inference."""
