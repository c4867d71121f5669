"""More in transient than a display id."""

publish("display_data", {"data": {"text/html": f"<script>{JS}</script>"}, "metadata": {}, "transient": {"display_id": "a", "trusted": True}})
