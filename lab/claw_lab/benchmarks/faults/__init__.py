"""Measures which data survives when a process dies, a disk is full or a client misbehaves."""
