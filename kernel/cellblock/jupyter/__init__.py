"""The Jupyter kernel: a front over one session, with sockets, messages and their order.

Invariant: requests reach a guest only through the session, which decides about them. Messages leave
only through ``channels``, and a guest's output only after the output gateway. What front ends send
is checked and bounded, whether or not it is signed.

A start, in order:

- ``start``: the order of a kernel's start. ``command_line`` parses its options, and
  ``ipykernel_options`` those that ipykernel has.
- ``early_zygote``: starts a zygote before anything slow is imported. ``kernel_policy`` reads the
  policy.
- ``assembly``: puts a kernel together, and asks the user first if the policy needs that.

A running kernel:

- ``kernel``: the requests, their order, and which are aborted. ``input_requests``: questions to the
  user.
- ``channels``: the connection file, the five sockets, iopub's queue and backpressure. ``messages``:
  signing and parsing, and the contents of replies. ``reactor``: the event loop over ``zmq.Poller``.
- ``lab``: the comms of JupyterLab's extension. ``lab_messages``: their messages. ``lab_changes``:
  staged changes.

Beside a kernel:

- ``provisioner``: keeps a kernel waiting in a server. ``warm``: that kernel, until it is launched.
- ``install`` and ``only``: kernelspecs. ``preparation``: makes what kernels' starts find made.
  ``proving``: runs the probes under a policy.

May import ``host`` and below. ADR 0001 says why only the kernelspecs use jupyter_client, and
nothing ipykernel.
"""
