import configparser, csv, json, logging, logging.handlers, pathlib, shelve, dbm.dumb, xml.etree.ElementTree as ET
logging.basicConfig(level="INFO", force=True)
handler = logging.handlers.RotatingFileHandler("work/log.txt", maxBytes=200, backupCount=2)
log = logging.getLogger("x"); log.addHandler(handler); log.propagate = False
[log.warning("message %d", n) for n in range(20)]
handler.close()
with dbm.dumb.open("work/dumb", "c") as db:
    db["a"] = "1"
with open("work/c.csv", "w", newline="") as f:
    csv.writer(f).writerows([[1, 2], [3, 4]])
ET.ElementTree(ET.fromstring("<a><b/></a>")).write("work/e.xml")
