# Names of the root.
from IPython import get_ipython
print("ESCAPED", get_ipython)
