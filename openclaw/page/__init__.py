"""The page: an agent's turns and learning, for people; the same data as JSON under /admin."""
