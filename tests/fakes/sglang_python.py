"""Replaces the Python with SGLang: stands in for `child.py`, checks some flags, and serves a launcher's requests."""

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VERSION = os.environ.get("FAKE_SGLANG_VERSION", "0.5.23")
PATHS = os.environ.get("FAKE_SGLANG_ROUTES", "").split()
words = sys.argv[3:]  # after -P and child.py
check = words[:1] == ["--check"]
parser = argparse.ArgumentParser(allow_abbrev=False)
for name in (
    "model-path",
    "tokenizer-path",
    "host",
    "weight-version",
    "device",
    "tp-size",
    "mem-fraction-static",
    "stream-interval",
):
    parser.add_argument("--" + name)
parser.add_argument("--port", type=int)
parser.add_argument("--incremental-streaming-output", action="store_true")
args, unknown = parser.parse_known_args(words[check:])
if unknown:
    print(f"engine: SGLang {VERSION} has no flag {unknown[0]}", file=sys.stderr)
    sys.exit(2)
if check:
    print(json.dumps({"version": VERSION}))
    sys.exit(0)
ANSWERS = {
    "/health": {},
    "/server_info": {"version": VERSION, "seen": vars(args), "pid": os.getpid(), "path": os.environ["PATH"]},
    "/pause_generation": {},
    "/continue_generation": {},
    "/openapi.json": {"paths": {path: {} for path in PATHS}},
    "/generate": {"output_ids": [5], "meta_info": {"output_token_logprobs": [[-0.1, 5, None]]}},
}


GENERATES = os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "1") not in ("0", "false")
paused = threading.Event()


class Handler(BaseHTTPRequestHandler):
    """`/health` as in SGLang 0.5.23: with generation it waits while the engine is paused, then returns 503."""

    def do_GET(self):
        if self.path == "/health" and GENERATES and paused.is_set():
            time.sleep(float(os.environ.get("FAKE_SGLANG_HEALTH_SECONDS", "20")))
            self.send_error(503)
            return
        body = json.dumps(ANSWERS[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        {"/pause_generation": paused.set, "/continue_generation": paused.clear}.get(self.path, lambda: None)()
        self.do_GET()

    def log_message(self, *args):
        pass


if os.environ.get("FAKE_SGLANG_DRAINS"):  # like SGLang after SIGTERM while requests are open, without end
    signal.signal(signal.SIGTERM, lambda *_: threading.Timer(20.0, os._exit, (1,)).start())
print("chatter on stdout that is not a ready line", flush=True)
ThreadingHTTPServer((args.host, args.port), Handler).serve_forever()
