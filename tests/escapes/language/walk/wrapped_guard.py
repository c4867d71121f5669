# What a guard wraps.
# unseen: what it attacks is the guard itself
import logging
print("ESCAPED", logging.basicConfig.__wrapped__)
