"""Binary RL as a method: converts a judged turn to a sample."""
