"""Records programs in a terminal; it makes the picture of the chat in the README."""
