# A search path of one's own.
# unseen: it ends the process or breaks a module, and gets nothing
import zoneinfo
zoneinfo.reset_tzpath(["@@HOME@@"])
print("ESCAPED", zoneinfo.ZoneInfo("secret"))
