"""Ten million rows: drawn to disk, fitted in bounded memory, and what that says about more."""
