"""Shadows, outlines and marks that are drawn around a box."""

html("<div style='box-shadow:0 0 0 3000px #fff;width:1px;height:1px'></div><div style='outline:3000px solid #fff'>x</div><div style='text-shadow:0 -300px 0 #000,0 -200px 90px #f00;font-size:80px'>x</div><div style='filter:drop-shadow(0 -300px 0 #000)'>x</div><div style='border-image-outset:900px;border-image-source:linear-gradient(red,red);border:1px solid'>x</div>")
