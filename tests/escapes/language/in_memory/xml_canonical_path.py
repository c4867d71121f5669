# A canonical form from a path.
import xml.etree.ElementTree as ET
try:
    ET.canonicalize(from_file="@@SSH@@")
except ET.ParseError as error:
    print("ESCAPED", error)
