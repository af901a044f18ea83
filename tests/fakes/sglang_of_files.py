"""Replaces the Python with SGLang, like `sglang_python.py`, and serves a folder: its log-probs are those of
`probe.json`, its digests those of the file's bytes. Uses only the standard library, so that many start quickly."""

import argparse
import hashlib
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

VERSION = "0.5.23"
words = sys.argv[3:]  # after -P and child.py
if words[:1] == ["--check"]:
    print(json.dumps({"version": VERSION}))
    sys.exit(0)
parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--model-path")
parser.add_argument("--weight-version")
parser.add_argument("--host")
parser.add_argument("--port", type=int)
args, _ = parser.parse_known_args(words)
state = {"model_path": args.model_path, "weight_version": args.weight_version}


def digests():
    data = (Path(state["model_path"]) / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    names = [name for name in json.loads(data[8 : 8 + size]) if name != "__metadata__"]
    digest = hashlib.sha256(data).hexdigest()
    return {"ranks": [{"checksums": dict.fromkeys(names, digest)}]}


def generate(body):
    """A probe requests the prompt's log-probs; a rollout gets a word after a delay."""
    if body.get("logprob_start_len") == 0:
        scores = json.loads((Path(state["model_path"]) / "probe.json").read_text())["log_probs"]
        return {"meta_info": {"input_token_logprobs": [[None, 0, None], *([one, 0, None] for one in scores)]}}
    time.sleep(float(os.environ.get("FAKE_SGLANG_SECONDS", "0.05")))
    meta = {"weight_version": state["weight_version"], "finish_reason": {"type": "stop"}}
    meta["output_token_logprobs"] = [[-0.1, 5, None]]
    return {"output_ids": [5], "text": f"{args.host}:{args.port}", "meta_info": meta}


def update(body):
    state.update(model_path=body["model_path"], weight_version=body["weight_version"])
    return {"success": True}


GET = {
    "/health": dict,
    "/model_info": lambda: state,
    "/server_info": lambda: {
        "version": VERSION,
        "dtype": "float32",
        "pid": os.getpid(),
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
    },
}
POST = {
    "/generate": generate,
    "/update_weights_from_disk": update,
    "/weights_checker": lambda body: digests(),
    "/pause_generation": lambda body: {},
    "/continue_generation": lambda body: {},
    "/abort_request": lambda body: {},
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(GET[self.path]())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(POST[self.path](json.loads(body or b"{}")))

    def answer(self, content):
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


ThreadingHTTPServer((args.host, args.port), Handler).serve_forever()
