# A path that says it can be read.
from xml.dom import minidom
class Name(str):
    def read(self, *_):
        return b""
try:
    minidom.parse(Name("@@SSH@@"))
except Exception as error:
    if "syntax" in str(error):
        print("ESCAPED", error)
