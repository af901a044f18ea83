"""Programs that print the numbers of instructions/numbers.md."""
