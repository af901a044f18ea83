"""One episode: the environment, the parsing of turns, and the browsers for its screen."""
