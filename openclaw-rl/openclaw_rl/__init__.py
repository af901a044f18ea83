"""Binary RL as a method: what a judged turn becomes."""
