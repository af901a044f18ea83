"""Replaces the Python with vLLM: stands in for `child.py`, checks some flags, and serves a launcher's requests."""

import argparse
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

order, *words = sys.argv[3:]  # after -P and child.py
parser = argparse.ArgumentParser(allow_abbrev=False)
for name in ("model", "tokenizer", "max-model-len", "max-num-seqs", "dtype", "tensor-parallel-size"):
    parser.add_argument("--" + name)
args, unknown = parser.parse_known_args(words)
if unknown:
    print(f"engine: vLLM 0.32.0: unrecognized arguments: {unknown[0]}", file=sys.stderr)
    sys.exit(2)
if order == "--check":
    print("chatter that is not an answer\n" + json.dumps({"version": "0.32.0"}))
    sys.exit(0)
visible = sorted(path.name for path in Path(os.environ["PYTHONPATH"]).iterdir())
SEEN = {
    "order": json.loads(order),
    "flags": vars(args),
    "visible": visible,
    "path": os.environ["PATH"],
    "threads": os.environ.get("OMP_NUM_THREADS"),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"version": "0.32.0", "seen": SEEN}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


HTTPServer((SEEN["order"]["host"], SEEN["order"]["port"]), Handler).serve_forever()
