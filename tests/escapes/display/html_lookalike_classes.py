"""Classes by which JupyterLab's own style sheets cover the page."""

html("<div class='lm-Widget jp-Dialog jp-mod-modal'><div class='jp-Dialog-content'><button class='jp-Dialog-button jp-mod-accept'>Restart</button></div></div><div class='jp-Toolbar jp-Spinner lm-Menu lm-mod-hidden cm-tooltip'>x</div>")
