"""Hooks called by a trainer: services to start, batches to lease, versions to commit."""
