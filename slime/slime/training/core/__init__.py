"""Code that every training backend shares: packed batches, the step, teachers, checkpoints, metrics."""
