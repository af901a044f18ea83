"""Models that see: images as a sample keeps them, where they stand among its tokens, and how a model is given them."""
