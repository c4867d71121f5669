import pandas as pd
df = pd.DataFrame({"a": [1, 2]})
df.to_xml("work/a.xml", parser="etree")
assert pd.read_xml("work/a.xml", parser="etree").a.sum() == 3
