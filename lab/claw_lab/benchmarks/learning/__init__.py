"""Measures how a model learns from people, and how judges and the gate decide."""
