#!/bin/bash
cd /app && cat lists/*.txt > lists/../all.txt && rm -rf lists
