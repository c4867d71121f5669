"""P2: a uuid.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.module_beside_notebook("uuid")
attack = doors.cause_more_imports
