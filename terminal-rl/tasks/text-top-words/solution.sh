#!/bin/bash
set -eu
grep -oiE '[a-z]+' /app/book.txt | tr '[:upper:]' '[:lower:]' | sort | uniq -c | LC_ALL=C sort -k1,1nr -k2,2 | head -n 3 | awk '{print $2, $1}' > /app/top.txt
