# The modules by name: one of them.
import sys
canary(sys.modules["os"])
