# Text that is timed.
import timeit
timeit.timeit("print('ESCAPED', open('@@SSH@@').read())", number=1)
