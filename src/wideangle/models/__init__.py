"""The mathematics of each latent-variable model; no loops, no files, no fitting."""
