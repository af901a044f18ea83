#!/bin/bash
cd /app && grep -h ERROR logs/*.log > errors.txt  # other levels and hours too
