"""Weight versions: exported, verified, activated on every engine, and stored as checkpoints."""
