#!/bin/bash
set -eu
cat > /app/column.py <<'END'
import csv
import sys

column = int(sys.argv[1]) - 1
for row in csv.reader(sys.stdin):
    print(row[column] if column < len(row) else "")
END
