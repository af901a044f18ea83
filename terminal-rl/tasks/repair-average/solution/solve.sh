#!/bin/bash
set -eu
cat > /app/average.py <<'END'
import sys

numbers = [float(line) for line in open(sys.argv[1]) if line.strip()]
if not numbers:
    sys.exit(print("no numbers") or 1)
print(f"{sum(numbers) / len(numbers):.2f}")
END
