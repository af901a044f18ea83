"""Weight versions: exported, checked, made live on every engine, kept as checkpoints."""
