# Entities within entities.
# unseen: expat stops it
import xml.etree.ElementTree as ET
names = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
try:
    ET.fromstring(f'<!DOCTYPE a [<!ENTITY l0 "lol">{names}]><a>&l11;</a>')
except ET.ParseError as error:
    print(error)
