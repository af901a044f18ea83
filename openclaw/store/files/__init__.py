"""Files of a store: exports, and conversations for training."""
