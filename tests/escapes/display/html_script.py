"""A script element."""

html(f"<script>{TERMINAL}</script>")
