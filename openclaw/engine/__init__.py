"""The client of inference engines: token ids in, token ids out, as they come."""
