"""tiny-claw: a one-million-parameter homework helper, its training data, recipe and evaluation."""
