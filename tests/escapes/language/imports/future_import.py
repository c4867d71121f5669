# A flag that changes parsing.
from __future__ import barry_as_FLUFL
import os
print("ESCAPED")
