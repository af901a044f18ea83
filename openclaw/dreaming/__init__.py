"""Dreaming trains the model on a person's wish (a stated preference) with answers to many shipped everyday prompts;
anchors preserve its other behaviour."""
