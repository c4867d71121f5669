# A star import of a refused module.
from os import *
print("ESCAPED", uname())
