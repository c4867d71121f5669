import getpass, locale, os, platform, resource, sys, sysconfig, time, uuid, zoneinfo
from datetime import datetime
assert os.cpu_count() >= 1 and len(os.sched_getaffinity(0)) >= 1 and os.getloadavg()
assert platform.platform() and platform.python_version() and platform.machine() and platform.node() is not None
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0 and resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >= 0
assert os.times().user >= 0 and time.process_time() > 0 and time.thread_time() > 0
assert datetime.now(zoneinfo.ZoneInfo("Asia/Tokyo")).tzinfo and uuid.uuid4() and uuid.uuid1()
assert os.getcwd() and os.path.expanduser("~") and sys.getfilesystemencoding() == "utf-8"
assert os.sysconf("SC_PAGE_SIZE") and os.get_terminal_size.__name__ and os.umask(0o022) >= 0
assert os.getpid() == os.getpgrp() and os.getuid() == os.geteuid() and os.getrandom(4) and os.urandom(4)
locale.setlocale(locale.LC_ALL, "")
