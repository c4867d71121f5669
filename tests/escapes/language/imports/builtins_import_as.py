# The same as an import alias.
import math as __builtins__
print("ESCAPED")
done = True
