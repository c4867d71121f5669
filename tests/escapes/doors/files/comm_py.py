"""P2: a comm.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.module_beside_notebook("comm")
attack = doors.cause_more_imports
