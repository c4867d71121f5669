# A private submodule.
import json.scanner as s
print("ESCAPED", s)
