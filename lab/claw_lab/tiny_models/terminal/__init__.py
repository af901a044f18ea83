"""The tiny agent of the terminal track: generated chores, and a checkpoint that can use a shell but knows no
chore."""
