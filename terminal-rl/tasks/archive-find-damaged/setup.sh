#!/bin/bash
set -eu
mkdir /app/parts
cd /app
for name in a b c d e f g h; do echo "part $name" > "parts/$name"; done
sha256sum parts/* > SHA256SUMS
echo 'part x' > parts/c
printf 'part h' > parts/h
rm parts/a parts/f
