"""Clusters of directions: mixtures of von Mises-Fisher distributions whose centres repel."""
