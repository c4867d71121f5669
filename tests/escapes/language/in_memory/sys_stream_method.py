# The namespace of a stream's method.
import sys
import functools
write = type(sys.stdout).write
for name in ("__globals__", "__closure__", "__code__", "__func__", "__self__"):
    try:
        canary(getattr(write, name))
    except Exception as error:
        print(error)
canary(getattr(print, "__self__", None))
