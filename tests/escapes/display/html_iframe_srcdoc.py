"""A frame whose document is an attribute."""

html(f'<iframe srcdoc="<script>top.{JS}</script>"></iframe>')
