"""A web page with an agent's turns and learning; the same data is available as JSON under /admin."""
