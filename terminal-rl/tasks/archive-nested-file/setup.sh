#!/bin/bash
set -eu
cd "$(mktemp -d)"
mkdir -p a/b pictures
echo 'not this one' > a/recipe.txt.old
printf 'flour\nwater\nsalt\n' > a/b/recipe.txt
tar -czf inner.tar.gz a
head -c 500 /dev/urandom > pictures/one.raw
mkdir middle
mv inner.tar.gz middle/
tar -czf middle.tar.gz middle
echo 'nothing here' > readme
tar -czf empty.tar.gz readme
tar -czf /app/backup.tar.gz pictures middle.tar.gz empty.tar.gz
