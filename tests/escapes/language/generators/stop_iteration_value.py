# What a library generator returns.
import contextlib
def g():
    return (yield)
x = g(); next(x)
try: x.send(1)
except StopIteration as e: print("ESCAPED", e.__traceback__.tb_frame, e.value)
