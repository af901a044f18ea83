"""A head of the sentence model that is adapted to what one person's messages mean."""
