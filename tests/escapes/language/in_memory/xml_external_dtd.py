# A document type that is a file.
# unseen: expat reads none
import xml.etree.ElementTree as ET
from xml.dom import minidom
text = '<!DOCTYPE a SYSTEM "file://@@SSH@@"><a/>'
print(ET.tostring(ET.fromstring(text)), minidom.parseString(text).toxml())
