"""Dialogs and popovers are drawn over everything."""

html("<dialog open style='position:fixed;inset:0;width:100vw;height:100vh'>modal</dialog><div popover=manual id=p style='position:fixed;inset:0'>pop</div><button popovertarget=p popovertargetaction=show autofocus>open</button><button commandfor=p command=show-popover>open</button><details name=a open>x</details>")
