#!/bin/bash
cd /app && sed 's/#.*//; /^$/d' main.conf > clean.conf && cp clean.conf main.conf
