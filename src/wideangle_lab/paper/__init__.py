"""The experiments of the paper, and ours beside them, as cells that run once and are kept."""
