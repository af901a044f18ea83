"""Random turns of people with marked words, and a count of the words that reach another person."""
