"""Which data survives when a process dies, a disk fills up or a client misbehaves."""
