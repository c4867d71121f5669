# Text before what is timed.
import timeit
timeit.repeat("pass", "import os; print('ESCAPED', os.environ)", number=1, repeat=1)
