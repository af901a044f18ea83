#!/bin/bash
cd /app && echo '{"name": "demo", "ports": {"http": 8080, "https": 443}, "tags": [], "limits": {"memory": {"soft": 512}}}' > settings.json
: > changes.jsonl
