"""The experiments of the paper and additional ones, as cells that are run once and saved."""
