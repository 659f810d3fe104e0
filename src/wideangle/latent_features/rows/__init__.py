"""Where the rows live: in memory, on a device, on disk."""
