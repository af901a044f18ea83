"""The hooks that a trainer calls: services to start, batches to lease, versions to commit."""
