# A tree from a path.
import xml.etree.ElementTree as ET
try:
    ET.parse("@@SSH@@")
except ET.ParseError as error:
    print("ESCAPED", error)
