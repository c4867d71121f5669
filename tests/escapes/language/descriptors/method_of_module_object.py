# A method whose self is a library object.
import logging
m = logging.getLogger().manager.getLogger
print("ESCAPED", m.__func__.__globals__)
