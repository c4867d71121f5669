"""The same by a style sheet, and the page's own elements hidden."""

html("<style>.g-c{position:fixed!important;top:0;left:0;width:100vw;height:100vh;z-index:99999;background:#fff} .jp-Toolbar,body>*{visibility:hidden!important} #main,#jp-top-panel{display:none!important}</style><div class=g-c>Your session has ended</div>")
