"""The Jupyter kernel: a front over one session. Sockets, messages and their order.

Invariant: no request reaches a guest but through the session, which decides; no message leaves
but through ``channels``, and a guest's output only through the host's output gateway. What front
ends send is checked and bounded, whether or not it is signed.

- ``start``: in which order a kernel starts; ``command_line``, and of that ``ipykernel_options``;
- ``early_zygote``: a zygote, before anything slow is imported; ``kernel_policy``: the policy that a
  kernel is under;
- ``assembly``: puts a kernel together, and asks the user first where a policy needs it;
- ``channels``: the connection file, the five sockets, iopub's queue and backpressure;
- ``messages``: signing and parsing, and the contents of replies;
- ``lab``: what an extension of JupyterLab is told, and may ask; ``lab_messages``, in which words;
  ``lab_changes``, of what is staged;
- ``kernel``: the requests, their order, and what aborts; ``input_requests``, questions to the user;
- ``reactor``: the event loop over ``zmq.Poller``;
- ``provisioner``, in a server: a kernel that waits; ``warm``, that one until it is launched;
- ``install`` and ``only``: kernelspecs; ``preparation``: what starts find made; ``proving``: what
  probes see of a policy here.

It may import ``host`` and below. Why none of it is ipykernel's or jupyter_client's but the
kernelspecs: ADR 0122.
"""
