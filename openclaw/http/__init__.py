"""The HTTP surface: OpenAI's routes, health, status and administration."""
