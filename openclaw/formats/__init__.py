"""Messages to token ids and sampled ids to messages, as each model family writes them."""
