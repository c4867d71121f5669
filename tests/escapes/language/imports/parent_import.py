# An unlisted parent imported by itself.
import urllib
from urllib import request
print("ESCAPED" if hasattr(urllib, "request") else "")
