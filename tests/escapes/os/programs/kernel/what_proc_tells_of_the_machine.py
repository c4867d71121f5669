# Facts about the machine, its users and its kernel's memory, none of a process (proc(5)).
confined = "EACCES"
NAMES = """
    buddyinfo cmdline config.gz consoles crypto devices diskstats driver/rtc dma execdomains fs
    interrupts iomem ioports kallsyms kcore key-users keys kpagecgroup kpagecount kpageflags
    latency_stats locks misc modules mtrr pagetypeinfo partitions pressure/cpu sched_debug schedstat
    slabinfo softirqs swaps sys/kernel/core_pattern sys/kernel/keys/maxkeys sys/kernel/random/boot_id
    sysvipc/shm timer_list tty/drivers vmallocinfo zoneinfo
"""
def attack(w):
    reached = []
    for each in NAMES.split():
        try:
            with open(f"/proc/{each}", "rb") as file:
                file.read(1)
            reached.append(each)
        except OSError:
            pass
    print(reached)
    if not reached:
        raise PermissionError(errno.EACCES, "none")
