"""A request's limits while it runs: time, processor time, memory, processes, scratch folder.

- ``deadlines``: interrupts and kills by the clock.
- ``monitor``: looks at what a guest takes, and tells what there is too much of. It reads
  ``processes`` (one process), ``family`` (those that a guest has started), ``scratch`` (its
  folder), ``shared_memory`` and ``kernel_memory`` (what no process is shown to hold).
- ``reading``: what a guest can keep locked is read in a thread.
- ``stat_reader``: so is what programs took, which one that begins another keeps locked.
- ``shares``: what the OS kernel says of pages that several processes have.
"""
