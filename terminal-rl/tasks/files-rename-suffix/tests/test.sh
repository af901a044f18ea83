#!/bin/bash
# For Harbor itself. Boxes of this repository run the functions of test_outputs.py one by one.
mkdir -p /logs/verifier
if python3 -c 'import runpy
for name, test in runpy.run_path("/tests/test_outputs.py").items():
    if name.startswith("test_"): test()'; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
