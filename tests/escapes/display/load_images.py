"""Images from afar in every way there is."""

html(rf"<img src='{URL}'><img srcset='{URL} 1x, {URL}/2 2x'><picture><source srcset='{URL}'><img src='data:,'></picture><img src='//127.0.0.1/x'><img src='\\127.0.0.1\x'><image src='{URL}'><img src='http:{URL}' loading=eager>")
