# A key that is a path.
# unseen: Python itself refuses it today
from zoneinfo import ZoneInfo
print("ESCAPED", ZoneInfo("../../../../../../@@SSH@@"))
