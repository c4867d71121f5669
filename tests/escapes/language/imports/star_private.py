# A star import of what the facade lacks.
# unseen: Python itself refuses it today
from random import *
print("ESCAPED", _os)
