import sys

column = int(sys.argv[1])
for line in sys.stdin:
    print(line.split(",")[column])
