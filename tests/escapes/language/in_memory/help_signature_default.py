# A signature of text, evaluated among modules.
# unseen: it would be printed at most
class A:
    __text_signature__ = "(x=os)"
import sys
help(A)
