# An entity that is a file.
# unseen: expat reads none
import xml.etree.ElementTree as ET
from xml.dom import minidom
text = '<!DOCTYPE a [<!ENTITY e SYSTEM "file://@@SSH@@">]><a>&e;</a>'
for read in (lambda: ET.tostring(ET.fromstring(text)), lambda: minidom.parseString(text).toxml()):
    try:
        print(read())
    except Exception as error:
        print(type(error))
