# The kernel's own package.
from cellblock.guest import guards
print("ESCAPED", guards)
