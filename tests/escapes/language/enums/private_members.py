# The private tables of an enumeration.
import enum, re
for e in (re.RegexFlag, enum.FlagBoundary):
    for k, v in e.__dict__.items():
        canary(v)
print("ESCAPED", re.RegexFlag._convert_.__globals__)
