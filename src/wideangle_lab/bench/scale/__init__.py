"""Ten million rows, generated on disk and fitted in bounded memory, and predictions for more."""
