# The namespace of timeit itself.
import timeit
timeit.timeit("print('ESCAPED', gc, sys, itertools)", number=1)
