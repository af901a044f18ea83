"""The tiny agent of the terminal track: chores made by a program, and a checkpoint that knows shells but no chore."""
