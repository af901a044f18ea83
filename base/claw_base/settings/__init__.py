"""How a setting is declared: one dataclass field gives its flag, its environment variables, its help and its checks."""
