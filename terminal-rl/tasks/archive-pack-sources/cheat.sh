#!/bin/bash
cd /app && tar -cf sources.tar.gz project  # all files, not compressed
