"""A request's limits while it runs: time, processor time, memory, processes, scratch folder.

- ``deadlines``: interrupts and kills by the clock
- ``monitor``: measures what a guest uses, and reports the limit that is exceeded. It reads
  ``processes`` (one process), ``family`` (those that a guest has started), ``scratch`` (its
  folder), ``shared_memory`` and ``kernel_memory`` (memory that no process is shown to hold)
- ``reading``: reads in a thread what a guest can keep locked
- ``stat_reader``: reads in a thread the stats of programs, which a program can keep locked
- ``shares``: asks the OS kernel how processes share pages
"""
