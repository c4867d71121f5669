# FileHandler through a subclass list.
import logging
print("ESCAPED", logging.FileHandler)
