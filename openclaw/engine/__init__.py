"""Client of inference engines: sends token ids, streams sampled token ids back."""
