"""Judge backends: a protocol, and one file for each backend."""
