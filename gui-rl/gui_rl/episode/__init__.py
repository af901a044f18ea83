"""One episode: the environment, what a turn means, and the browsers that it gets a screen from."""
