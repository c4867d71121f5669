# Methodcaller calls a generic alias's lookup.
# unseen: Python itself refuses it today
import heapq, operator, typing
print("ESCAPED", operator.methodcaller("__getattr__", "__globals__")(typing.Annotated[heapq.merge, 1]))
