# Statistics' own imports.
import statistics
print("ESCAPED", statistics.sys)
