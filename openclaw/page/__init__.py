"""The page: what an agent lives through and learns, for people; the same as JSON under /admin."""
