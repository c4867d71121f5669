# Functools copies code onto a function.
from functools import update_wrapper
def a(): return 1
def b(): return 2
update_wrapper(a, b, assigned=("__code__",))
if a() == 2: print("ESCAPED")
