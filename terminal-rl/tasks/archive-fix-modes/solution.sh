#!/bin/bash
set -eu
cd /app/site
find . -type d -exec chmod 755 {} +
find . -type f -exec chmod 644 {} +
find . -type f -name '*.sh' -exec chmod 755 {} +
find keys -type f -exec chmod 600 {} +
