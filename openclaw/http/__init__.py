"""HTTP routes of the gateway: the API dialects, health, status and administration."""
