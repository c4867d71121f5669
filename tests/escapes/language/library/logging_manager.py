# The manager's module globals.
import logging
m = logging.getLogger("x").manager
print("ESCAPED", m.getLogger.__globals__)
