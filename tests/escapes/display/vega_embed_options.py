"""Usermeta of a chart: themes, patches and loaders by address."""

show("application/vnd.vegalite.v4+json", {"data": {"values": [{"a": 1}]}, "mark": "bar",
    "usermeta": {"embedOptions": {"patch": URL, "config": URL, "loader": {"baseURL": URL},
                                  "actions": {"source": True}, "sourceHeader": f"<script>{JS}</script>"}}})
