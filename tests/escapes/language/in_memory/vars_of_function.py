# The namespace of a library's function.
import functools
space = vars(functools.wraps)
print("ESCAPED", functools.wraps.__globals__)
