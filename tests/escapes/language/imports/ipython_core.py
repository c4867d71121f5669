# The implementation package.
from IPython.core import interactiveshell
print("ESCAPED")
