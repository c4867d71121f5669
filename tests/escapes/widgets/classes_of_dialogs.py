"""A widget with the class by which JupyterLab lays a dialog over the page."""

control("HTML", value="covered", _dom_classes=["jp-Dialog"])
