"""The moves of one sweep; they do not depend on the search, files or the estimator."""
