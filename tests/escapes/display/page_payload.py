"""A pager with HTML and scripts."""

get_ipython().payload_manager.write_payload({"source": "page", "start": 0, "data": {
    "text/html": f"<script>{JS}</script>", "application/javascript": JS, "text/plain": "\x1b]0;x\x07"}})
