"""Conversations that other programs have kept: read, told apart and brought into the store."""
