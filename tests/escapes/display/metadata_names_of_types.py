"""Metadata that is markup."""

publish("display_data", {"data": {"text/html": f"<img src=x onerror={JS}>"}, "metadata": {f"<img src=x onerror={JS}>": {"a": f"<script>{JS}</script>"}}, "transient": {}})
