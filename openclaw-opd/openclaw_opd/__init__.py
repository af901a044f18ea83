"""On-policy distillation as a method: what a judged turn becomes, and its loss."""
