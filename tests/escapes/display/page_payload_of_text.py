"""A pager with text of the old form, and with sequences."""

get_ipython().payload_manager.write_payload({"source": "page", "text": f"\x1b]0;x\x07<script>{JS}</script>", "html": f"<script>{JS}</script>", "start": -1}, single=False)
