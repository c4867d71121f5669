"""Animations and transitions that move a box later."""

html("<style>@keyframes g-k{to{position:fixed;top:0;left:0;width:100vw;height:100vh}} .g-d{animation:g-k 1s forwards} .g-d:hover{position:fixed;inset:0}</style><div class=g-d>x</div><marquee behavior=alternate scrollamount=99 height=999>x</marquee><blink>x</blink>")
