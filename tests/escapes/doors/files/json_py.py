"""P2: a json.py beside the notebook runs in place of the real one."""

from support import doors

CONTROL = "loose"
prepare = doors.module_beside_notebook("json")
attack = doors.cause_more_imports
