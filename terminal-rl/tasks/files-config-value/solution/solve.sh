#!/bin/bash
set -eu
sed -i '/^\[server\]/,/^\[metrics\]/ s/^port = .*/port = 8443/' /app/app.ini
