"""The moves of one sweep; they know no search, no file and no estimator."""
