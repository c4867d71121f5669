# A builder fetches by any protocol.
from xml.dom import minidom
builder = minidom.getDOMImplementation().createDOMBuilder(1, None)
try:
    builder.parseURI("file://@@SSH@@")
except PermissionError as error:
    print(error)
except Exception as error:
    print("ESCAPED", error)
