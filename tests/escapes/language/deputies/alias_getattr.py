# A generic alias looks up a name in its origin.
# unseen: Python itself refuses it today
from typing import Annotated
g = (x for x in ())
print("ESCAPED", Annotated[g, 1].__getattr__("gi_frame"))
