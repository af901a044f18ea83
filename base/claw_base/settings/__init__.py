"""Declares settings: one dataclass field defines a flag, its environment variables, its help and its checks."""
