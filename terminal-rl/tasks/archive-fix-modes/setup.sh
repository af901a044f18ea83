#!/bin/bash
set -eu
mkdir -p /app/site/tools /app/site/keys/old /app/site/css
cd /app/site
echo '<p>hello</p>' > index.html
echo 'echo run' > run.sh
echo 'echo clean' > 'tools/clean up.sh'
echo 'secret' > keys/id
echo 'echo key' > keys/old/make.sh
echo 'p {}' > css/main.css
chmod 755 . keys
chmod 777 css keys/old
chmod 700 tools
chmod 644 run.sh keys/id keys/old/make.sh 'tools/clean up.sh'
chmod 755 index.html
chmod 664 css/main.css
