"""FRONT: the same run on a Dask cluster, one notebook a task, a warm zygote in each worker process.

Workers are hosts, and as trusted as this process: Dask's own protocol carries programs both ways.
Nothing of that is a guest's. What crosses as ours is bytes that are decoded strictly.
"""
