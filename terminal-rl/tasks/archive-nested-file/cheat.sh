#!/bin/bash
cd /app && tar -xzf backup.tar.gz && touch recipe.txt
