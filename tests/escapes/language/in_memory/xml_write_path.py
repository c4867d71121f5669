# A tree to a path.
import xml.etree.ElementTree as ET
ET.ElementTree(ET.Element("a")).write("@@WDIR@@/a.xml")
