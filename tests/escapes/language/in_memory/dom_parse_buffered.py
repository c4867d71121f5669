# A document from a path, by the other parser.
from xml.dom import minidom
try:
    minidom.parse("@@SSH@@", bufsize=1)
except Exception as error:
    if "syntax" in str(error):
        print("ESCAPED", error)
