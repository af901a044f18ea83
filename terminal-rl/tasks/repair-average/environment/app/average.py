import sys

with open(sys.argv[1]) as file:
    numbers = [int(line) for line in file]
print("%.2f" % (sum(numbers) // len(numbers)))
