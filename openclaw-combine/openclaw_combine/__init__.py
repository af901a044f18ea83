"""Binary RL and distillation combined, and the hybrid: what a judged turn becomes, and its loss."""
