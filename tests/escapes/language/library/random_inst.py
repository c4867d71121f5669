# The hidden instance's class.
import random
print("ESCAPED", type(random._inst))
