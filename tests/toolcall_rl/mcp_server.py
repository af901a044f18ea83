"""A small MCP server over stdio, for tests: adds, rejects, sleeps, exits, and reports the client's greeting."""

import json
import os
import sys
import time

TOOLS = [
    {
        "name": name,
        "description": f"Does {name}.",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    }
    for name in ("add", "refuse", "fail", "sleep", "end", "environment", "flood")
]


def called(name, arguments):
    if name == "refuse":
        return {"error": {"code": -32602, "message": "not today"}}
    if name == "sleep":
        time.sleep(60)
    if name == "end":
        sys.exit(3)
    texts = {
        "add": str(arguments.get("a", 0) + arguments.get("b", 0)),
        "environment": ",".join(sorted(os.environ)),
        "flood": "x" * 200_000,
    }
    content = [{"type": "text", "text": texts.get(name, name)}, {"type": "image", "data": ""}]
    return {"result": {"content": content, "isError": name == "fail"}}


def answer(request):
    match request["method"]:
        case "initialize":
            print("a line that is not a message", flush=True)
            return {"result": {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {}}}
        case "tools/list":
            if "cursor" not in request["params"]:
                return {"result": {"tools": TOOLS[:2], "nextCursor": "more"}}
            return {"result": {"tools": TOOLS[2:]}}
        case "tools/call":
            return called(request["params"]["name"], request["params"]["arguments"])
        case _:
            return {"error": {"code": -32601, "message": "no such method"}}


for line in sys.stdin:
    message = json.loads(line)
    if "method" in message and "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": 99, "method": "ping"}), flush=True)
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message)}), flush=True)
