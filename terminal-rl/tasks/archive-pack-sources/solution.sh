#!/bin/bash
set -eu
cd /app && find project -name '*.py' -type f -print0 | tar --null -czf sources.tar.gz -T -
