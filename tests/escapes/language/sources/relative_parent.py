# A relative import of a parent.
# unseen: Python itself refuses it today
from .. import os
print("ESCAPED", os)
