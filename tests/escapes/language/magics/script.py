# A script run by another program.
%%script python3
import os; print(os.uname().release[::-1])
