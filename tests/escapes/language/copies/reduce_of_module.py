# A facade's reduction.
# unseen: Python itself refuses it today
import json
print("ESCAPED", object.__reduce_ex__(json, 4))
