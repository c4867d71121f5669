# A log file.
import logging
logging.basicConfig(filename="@@WDIR@@/log")
logging.error("x")
