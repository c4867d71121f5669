# Another interpreter.
%%python
import os; print(os.uname().release[::-1])
