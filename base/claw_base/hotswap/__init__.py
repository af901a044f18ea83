"""Keeps a port open while the processes that serve it come and go. Linux only.

A socket supervisor holds a listening socket and serves nothing itself. It imports all modules, then forks workers, so a
worker starts in a fraction of the imports' time and shares their memory. One worker serves; a spare is built and waits.
When the serving worker has ended, the supervisor orders the spare to take over. Connections that arrive in between wait
in the socket's backlog and are not refused.

If a supervisor with a `TakeoverId` is killed, its workers continue: one serves, the spare waits, and the next supervisor
receives the socket and the workers from them (`takeover.py`). Otherwise they end with it. `worker_channel.py` is a
worker's side, `children.py` has forks and signals.
"""
