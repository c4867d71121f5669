# Modules behind a document.
from xml.dom import minidom
canary(minidom.io)
canary(minidom.xml)
canary(minidom.Document().toxml.__func__.__globals__["io"])
