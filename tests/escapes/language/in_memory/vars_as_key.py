# The namespaces of classes, asked in C.
import functools
found = list(map(vars, [functools.partial, type, type(lambda: 0)]))
canary(found[2]["__globals__"].__get__(functools.wraps))
