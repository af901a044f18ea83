"""Dreaming: the model learns a wish from answers to many shipped everyday prompts; anchors keep its other behaviour."""
