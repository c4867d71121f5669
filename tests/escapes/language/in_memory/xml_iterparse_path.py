# Events from a path.
import xml.etree.ElementTree as ET
try:
    list(ET.iterparse("@@SSH@@"))
except ET.ParseError as error:
    print("ESCAPED", error)
