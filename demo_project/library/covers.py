"""The cover of a package: a map in which each module has the area of its source, in colours derived from the name."""

import colorsys
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from zlib import crc32

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 480, 640
MARGIN = 36
TITLE = 172  # the height of the band above the map
GAP = 3
HUES = (0.00, 0.04, 0.08, 0.12, 0.36, 0.45, 0.50, 0.55, 0.60, 0.65, 0.72, 0.79, 0.86, 0.93)  # few greens: they dominate the rest

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Box:
    """A rectangle on the canvas."""

    left: float
    top: float
    width: float
    height: float

    def split(self, share: float) -> tuple["Box", "Box"]:
        """Split the longer side; the first part gets `share` of the area."""
        if self.width >= self.height:
            cut = self.width * share
            return Box(self.left, self.top, cut, self.height), Box(self.left + cut, self.top, self.width - cut, self.height)
        cut = self.height * share
        return Box(self.left, self.top, self.width, cut), Box(self.left, self.top + cut, self.width, self.height - cut)


def cover(title: str, sizes: Mapping[str, int], caption: str) -> bytes:
    """Return a PNG image for a package of modules with these `sizes`; the same input gives the same bytes."""
    hue = HUES[crc32(title.encode()) % len(HUES)]
    image = Image.new("RGB", (WIDTH, HEIGHT))
    draw = ImageDraw.Draw(image)
    for y in range(HEIGHT):
        draw.line([(0, y), (WIDTH, y)], fill=_colour(hue, 0.27 - 0.13 * y / HEIGHT, 0.48))
    _map(draw, sizes, hue)
    draw.rectangle([MARGIN, MARGIN, MARGIN + 44, MARGIN + 5], fill=_colour(hue + 0.08, 0.72, 0.85))
    draw.text((MARGIN, MARGIN + 22), title, font=_fit(title, 46), fill=(255, 255, 255))
    draw.text((MARGIN, MARGIN + 88), caption, font=ImageFont.load_default(19), fill=_colour(hue, 0.84, 0.35))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def treemap(sizes: Mapping[str, int], box: Box) -> Iterator[tuple[str, Box]]:
    """Yield for each name a rectangle of `box` whose area is its share of all sizes."""
    yield from _divide(sorted(sizes.items(), key=lambda item: (-item[1], item[0])), box)


def _divide(items: list[tuple[str, int]], box: Box) -> Iterator[tuple[str, Box]]:
    if len(items) <= 1:
        yield from ((name, box) for name, _ in items)
        return
    total, taken, count = sum(size for _, size in items), 0, 0
    while count < len(items) - 1 and (count == 0 or taken + items[count][1] <= total / 2):
        taken, count = taken + items[count][1], count + 1
    first, second = box.split(taken / total)
    yield from _divide(items[:count], first)
    yield from _divide(items[count:], second)


def _map(draw: ImageDraw.ImageDraw, sizes: Mapping[str, int], hue: float) -> None:
    """Fill the lower part of the canvas with one tile per module, with its name if that fits."""
    area = Box(MARGIN, TITLE, WIDTH - 2 * MARGIN, HEIGHT - TITLE - MARGIN)
    font = ImageFont.load_default(14)
    for name, box in treemap({name: max(size, 1) for name, size in sizes.items()}, area):
        seed = crc32(name.encode())
        tile = _colour(hue + (seed % 41 - 20) / 300, 0.50 + seed % 29 / 100, 0.50)
        gap = min(GAP, box.width / 4, box.height / 4)
        corners = [box.left, box.top, box.left + max(box.width - gap, 1), box.top + max(box.height - gap, 1)]
        draw.rounded_rectangle(corners, radius=min(5, box.width / 4, box.height / 4), fill=tile)
        label = name.rpartition(".")[2]
        if draw.textlength(label, font=font) < box.width - 18 and box.height > 28:
            draw.text((box.left + 8, box.top + 6), label, font=font, fill=_colour(hue, 0.12, 0.60) if sum(tile) > 380 else (255, 255, 255))


def _fit(text: str, size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return the built-in font at `size`, or smaller if `text` would not fit between the margins."""
    font = ImageFont.load_default(size)
    width = font.getlength(text)
    return font if width <= WIDTH - 2 * MARGIN else ImageFont.load_default(size * (WIDTH - 2 * MARGIN) / width)


def _colour(hue: float, lightness: float, saturation: float) -> Colour:
    red, green, blue = colorsys.hls_to_rgb(hue % 1, lightness, saturation)
    return round(red * 255), round(green * 255), round(blue * 255)
