"""Fields that the protocol does not know."""

publish("display_data", {"data": {"text/html": f"<script>{JS}</script>"}, "metadata": {}, "transient": {}, "trusted": True, "output_type": "error", "buffers": []})
