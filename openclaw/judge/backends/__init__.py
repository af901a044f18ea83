"""Who judges: a protocol, and one file a backend."""
