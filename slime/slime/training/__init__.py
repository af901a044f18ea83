"""Training: one trainer per rank, the code that both backends share (`core`), and the two backends."""
