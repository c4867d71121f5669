# Json's scanner calls the slot with a number's text.
# unseen: Python itself refuses it today
import json, heapq, functools
print("ESCAPED", json.loads("1.5", parse_constant=None, parse_float=functools.partial(object.__getattribute__, heapq.merge)))
