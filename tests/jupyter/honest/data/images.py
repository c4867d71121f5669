from PIL import Image, ImageDraw, ImageFont
image = Image.new("RGB", (64, 64), "white")
ImageDraw.Draw(image).text((2, 2), "hello", fill="black", font=ImageFont.load_default())
for kind in ("png", "jpg", "webp", "tiff", "gif", "bmp"):
    image.save(f"work/i.{kind}")
    assert Image.open(f"work/i.{kind}").size == (64, 64)
