from pathlib import Path

BEFORE = """; the client talks to the server
[client]
port = 8080
timeout = 5

[server]
; behind the proxy
host = 127.0.0.1
port = {}
workers = 4

[metrics]
port = 9100
"""


def test_the_one_port_has_changed_and_nothing_else():
    assert Path("/app/app.ini").read_text() == BEFORE.format(8443)
