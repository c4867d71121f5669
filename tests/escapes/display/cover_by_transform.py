"""Boxes moved by other means than a position."""

html("""<div style='transform:translateY(-400px) scale(9);width:400px;height:90px;background:#fff'>x</div><div style='translate:0 -300px;scale:20;rotate:5deg'>x</div><div style='margin-top:-500px;margin-left:-500px;width:900px;height:600px;background:#fff'>x</div><div style='margin:calc(0px - 500px)'>x</div><div style='offset-path:path("M0,-300");offset-distance:100%'>x</div><div style='zoom:30'>x</div><div style='inset:-400px;position:relative'>x</div>""")
