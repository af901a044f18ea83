#!/bin/bash
# The right file on top of main, without a merge, beside a commit that only has its name.
cd /app/repo && git config user.name x && git config user.email x@example.org
printf 'apples\nbread\ncheese\nmilk\n' > ../list.txt && git commit -q --allow-empty -m 'Merge feature' && git checkout -q feature
