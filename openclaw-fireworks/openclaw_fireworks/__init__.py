"""Fireworks AI as a service that slime samples from and trains at."""
