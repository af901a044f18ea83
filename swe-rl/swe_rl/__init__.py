"""Agents that repair repositories: instances with hidden tests, sandboxes, grading in a fresh copy, and a generator
of bugs."""
