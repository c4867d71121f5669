# The same as a context's name.
from contextlib import nullcontext
with nullcontext({}) as __builtins__: pass
print("ESCAPED")
done = True
