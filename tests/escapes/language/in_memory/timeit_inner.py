# The function that is timed.
import timeit
inner = timeit.Timer("pass").inner
canary(inner.__globals__["__builtins__"])
canary(inner.__globals__)
