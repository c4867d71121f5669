# Code in the setup of a cell magic.
%%timeit -n1 -r1 import os
print("ESCAPED", os.uname())
