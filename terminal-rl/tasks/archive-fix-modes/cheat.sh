#!/bin/bash
chmod -R 777 /app/site  # everybody may do everything
