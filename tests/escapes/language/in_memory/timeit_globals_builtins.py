# Builtins of a cell's own for the text.
import timeit
space = {"__builtins__": {"print": print}}
timeit.timeit("print(__builtins__)\nprint('ESCAPED')", globals=space, number=1)
