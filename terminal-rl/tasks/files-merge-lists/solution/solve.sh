#!/bin/bash
set -eu
find /app/lists -type f -exec cat {} + | tr '[:upper:]' '[:lower:]' | LC_ALL=C sort -u > /app/all.txt
