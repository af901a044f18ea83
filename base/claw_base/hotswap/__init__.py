"""Keeps a port open while the processes that serve it come and go. Linux only.

A door holds a listening socket and serves nothing itself. It forks workers from itself, after it has imported what they
need, so a worker starts in a fraction of the imports' time and shares their memory. One serves; a spare is built and
waits. When the one that serves has ended, the door orders the spare to take over; connections that arrive meanwhile
wait in the socket's backlog and are not refused.

Workers whose door was killed go on if it is watched: one serves, the spare waits behind it, and the next door
receives the socket and the workers from them (`orphans.py`). Otherwise they end with it. `post.py` is a worker's
side, `children.py` has forks and signals.
"""
