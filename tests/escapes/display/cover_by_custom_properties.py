"""The theme's own variables, changed for the whole page."""

html("<style>:root{--jp-layout-color0:#f00;--jp-content-font-size1:90px;--jp-ui-font-color1:transparent} body{--jp-layout-color1:#f00} html,body,*{--jp-toolbar-background:#000} .jp-Notebook{--x:1}</style><p>x</p>")
