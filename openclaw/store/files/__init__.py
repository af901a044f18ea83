"""What goes in and out of a store as files: exports, and conversations to be trained."""
