# A form feed before an import.
x = 1
import os
print("ESCAPED", os.uname())
