"""The plain processes of a run: their records, who starts, watches and restarts them."""
