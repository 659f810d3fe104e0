"""The folder a fit leaves behind: model, settings, metrics, encoding and some held-out rows."""
