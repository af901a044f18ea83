"""The tiny agent of the terminal track: chores that are made by a program, and a checkpoint that knows shells but no chore."""
