"""Scripts with environments of their own: real engines, real clients, clusters, services."""
