"""Declares a setting: one dataclass field gives its flag, its environment variables, its help and its checks."""
