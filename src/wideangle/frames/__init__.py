"""A user's table: read a file, make numbers of its columns, and remember how."""
