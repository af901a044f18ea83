#!/bin/bash
# Makes files of the wanted names and leaves the contents behind.
cd /app/notes && touch monday.md 'trip to rome.md' plan.v2.md && rm -rf -- *.txt
