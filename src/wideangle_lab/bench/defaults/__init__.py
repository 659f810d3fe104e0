"""Fits of real tables with default settings, compared with other classifiers."""
