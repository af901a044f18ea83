"""Files of a store: exports, and conversations to be trained."""
