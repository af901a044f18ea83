"""Reads and writes files of a store: exports, and conversations for training."""
