# Itemgetter over a class's namespace.
import operator
d = operator.itemgetter("__globals__")(type(lambda: 0).__dict__)
print("ESCAPED", d)
