# The root of an allowed submodule.
import IPython.display
print("ESCAPED", IPython.get_ipython)
