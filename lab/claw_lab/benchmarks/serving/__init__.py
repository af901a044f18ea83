"""The gateway, the store, the engines and what they hand on: speed, exactness, start."""
