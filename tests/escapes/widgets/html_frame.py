"""An HTML widget with a frame that holds a page of its own."""

control("HTML", value=f'<iframe srcdoc="<script>parent.{JS}</script>"></iframe>')
