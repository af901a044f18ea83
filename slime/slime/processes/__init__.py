"""The plain processes of a run: who starts, watches and restarts them."""
