"""The cell that ran, replaced by another."""

get_ipython().payload_manager.write_payload({"source": "set_next_input", "text": "import os", "replace": True})
