# A call made in C of a method that a cell chose.
# unseen: it hands over the object alone
import sys
class Odd:
    __sizeof__ = print
    def __init__(self):
        self.seen = []
print(sys.getsizeof([]))
try:
    sys.getsizeof(Odd())
except Exception as error:
    print(error)
