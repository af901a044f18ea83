"""A server small enough to start in a moment: answers 200, and 500 after a GET of /break."""

import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    broken = False

    def do_GET(self) -> None:
        if self.path == "/break":
            Handler.broken = True
        self.send_response(500 if Handler.broken else 200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


if __name__ == "__main__":
    print("serving", *sys.argv[1:], flush=True)
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
