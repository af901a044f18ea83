#!/bin/bash
set -eu
cat /app/logs/*.log | awk '$2 == "ERROR" && $1 >= "2024-06-01T10:00:00" && $1 < "2024-06-01T11:00:00"' | LC_ALL=C sort > /app/errors.txt
