# A package that holds the others.
import IPython.core.getipython as g
print("ESCAPED", g.get_ipython())
