"""Frames by script, data and address."""

html(f"<iframe src='javascript:top.{JS}'></iframe><iframe src='data:text/html,<script>top.{JS}</script>'></iframe><iframe src='{URL}'></iframe><frameset onload={JS}><frame src='{URL}'></frameset>")
