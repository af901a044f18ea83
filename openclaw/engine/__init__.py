"""Client of inference engines: sends token ids and receives streams of sampled token ids."""
