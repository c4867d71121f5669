"""P2: a IPython.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.module_beside_notebook("IPython")
attack = doors.cause_more_imports
