#!/bin/bash
# A light tag on a new commit of the same message.
cd /app/repo && git config user.name x && git config user.email x@example.org
git checkout -q -b hotfix && git commit -q --allow-empty -m 'Release 1.0' && git tag v1.0
