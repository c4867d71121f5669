"""Links that are scripts, in all forms."""

markdown(rf"""[a](javascript:{JS}) [b](JaVaScRiPt:{JS}) [c](<javascript:{JS}>) [d][x] <javascript:{JS}> [e](java&#115;cript:{JS}) [f](java&Tab;script&colon;{JS}) [g](\javascript:{JS}) [h](data:text/html,<script>top.{JS}</script>) [i](vbscript:{JS})

[x]: javascript:{JS} 'title'
""")
