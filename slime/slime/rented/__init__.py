"""Sampling and gradients that a service computes on its own GPUs: what such a service must do, and what it costs."""
