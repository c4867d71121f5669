"""Payloads that end the session, edit files and load scripts."""

for payload in ({"source": "ask_exit", "keepkernel": False}, {"source": "edit_magic", "filename": "/etc/passwd", "line_number": 1},
                {"source": "edit", "filename": "/etc/passwd"}, {"source": "IPython.kernel.zmq.page.page", "text": JS}):
    get_ipython().payload_manager.write_payload(payload, single=False)
