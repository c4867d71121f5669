# Copy calls what __reduce_ex__ returns.
import copy
class P:
    def __reduce_ex__(self, v): return (eval, ("1",))
print("ESCAPED", copy.copy(P()))
