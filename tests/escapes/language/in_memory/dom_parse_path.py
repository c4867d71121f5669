# A document from a path.
from xml.dom import minidom
try:
    minidom.parse("@@SSH@@")
except Exception as error:
    if "syntax" in str(error):
        print("ESCAPED", error)
