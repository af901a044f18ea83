"""One desktop an episode: its own display, and sandboxed programs on it."""
