"""Scripts with their own environments: real engines, real clients, clusters, services."""
