"""Where does repulsion pay? Registered comparisons of the same model with and without it."""
