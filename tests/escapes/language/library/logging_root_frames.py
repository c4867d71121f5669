# The logger's own frame search.
import logging
print("ESCAPED", logging.currentframe())
