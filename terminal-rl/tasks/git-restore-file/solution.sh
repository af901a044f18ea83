#!/bin/bash
set -eu
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.org GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.org
export GIT_AUTHOR_DATE='2024-03-01T10:00:00Z' GIT_COMMITTER_DATE='2024-03-01T10:00:00Z'

cd /app/repo
gone=$(git rev-list -n 1 HEAD -- guide.txt)
git checkout -q "$gone^" -- guide.txt
git commit -q -m 'Bring the guide back'
