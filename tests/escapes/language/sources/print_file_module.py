# Print's file that is a module.
import json
class W:
    def write(self, s): print.__self__
print("x", file=W())
print("ESCAPED", print.__self__.open)
