"""A map whose tiles, icons and popups come from the listener."""

import folium
drawn = folium.Map(location=(0, 0), tiles=URL + "/{z}/{x}/{y}", attr="x")
folium.Marker((0, 0), popup=f"<img src={URL}><script>top.{JS}</script>", icon=folium.CustomIcon(URL)).add_to(drawn)
display(drawn)
