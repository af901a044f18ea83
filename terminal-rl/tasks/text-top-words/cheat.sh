#!/bin/bash
printf 'the 9\nof 8\nrain 7\n' > /app/top.txt  # guessed, nothing counted
