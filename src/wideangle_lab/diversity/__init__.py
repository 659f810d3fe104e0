"""Where repulsion helps: registered comparisons of a model with and without it."""
