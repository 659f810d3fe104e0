"""Writers of documentation pages."""
