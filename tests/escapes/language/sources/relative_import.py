# A relative import.
# unseen: Python itself refuses it today
from . import os
print("ESCAPED", os)
