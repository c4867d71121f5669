# The builtins of a module.
import csv
print("ESCAPED", csv.__builtins__["open"]("@@SSH@@").read())
