import time, pytest
FIGURE = """import plotly.graph_objects as go
go.Figure(go.Scatter(x=[1, 2, 3, 4], y=[1, 4, 2, 3], mode="markers", marker_size=20))
"""
@pytest.mark.parametrize("kernel", ["cellblock-data", "python3"])
def test_measure(open_notebook, kernel):
    n = 8
    view = open_notebook(["1"] + [FIGURE] * n, kernel=kernel, width=1_100, height=1_200, prepare=lambda _: None)
    view.run(0)
    for i in range(1, n + 1):
        view.select(i)
        t = time.perf_counter()
        view.page.keyboard.press("Control+Enter")
        if kernel == "python3":
            p = view.outputs(i).locator(".scatterlayer .point").first
        else:
            p = view.outputs(i).locator("iframe.cellblock-frame").content_frame.locator("iframe").content_frame.locator(".scatterlayer .point").first
        try:
            p.wait_for(timeout=15000)
        except Exception as e:
            print("ERR", str(e)[:300]); view.shot("measure-" + kernel); print(view.outputs(i).inner_html()[:500]); break
        print("TIME", kernel, i, round(1000 * (time.perf_counter() - t)))
