"""Original data: downloaded, unpacked and converted to the files that the library reads."""
