"""FRONT: ``cellblock run --cluster``. The same run on a Dask cluster, one notebook a task.

Workers are hosts, and as trusted as this process: Dask's own protocol carries programs both ways.
No part of that is a guest's. What crosses as ours is bytes that are decoded strictly.

The parts, in the order a notebook meets them:

- `client`: the run's end. It knows which workers keep the policy, sends notebooks, and takes
  results and audit logs home.
- `worker`: in each worker process, a pool with a warm zygote for as long as the run lasts; and
  what is sent to and from it.

The workers run notebooks with `batch.run.execution`, and the client is an executor of
`batch.run.runner`. Dask is an extra: only this package imports it.
"""
