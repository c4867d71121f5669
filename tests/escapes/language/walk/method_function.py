# The function under a library method.
import random
print("ESCAPED", random.seed.__func__, random.seed.__self__)
