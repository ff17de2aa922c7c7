// Colour maps, perceptually uniform and safe for colour-blind readers, sampled from matplotlib at equal steps.

const COLOUR_MAPS = {
  Viridis:
    "#440154 #48186a #472d7b #424086 #3b528b #33638d #2c728e #26828e #21918c " +
    "#1fa088 #28ae80 #3fbc73 #5ec962 #84d44b #addc30 #d8e219 #fde725",
  Cividis:
    "#00224e #002e6a #1a386f #32436d #434e6c #535a6d #61656f #6f7073 #7d7c78 " +
    "#8c8878 #9b9476 #aba072 #bcae6c #cdbb63 #dec958 #f0d846 #fee838",
  Magma:
    "#000004 #0a0822 #1d1147 #36106b #51127c #6a1c81 #832681 #9c2e7f #b73779 " +
    "#d0416f #e75263 #f56b5c #fc8961 #fea772 #fec488 #fde2a3 #fcfdbf",
  Inferno:
    "#000004 #0b0724 #210c4a #3d0965 #57106e #71196e #8a226a #a32c61 #bc3754 " +
    "#d24644 #e45a31 #f1731d #f98e09 #fcac11 #f9cb35 #f2ea69 #fcffa4",
  Plasma:
    "#0d0887 #310597 #4c02a1 #6600a7 #7e03a8 #9511a1 #aa2395 #bc3587 #cc4778 " +
    "#da5a6a #e66c5c #f0804e #f89540 #fdac33 #fdc527 #f8df25 #f0f921",
  Greys:
    "#000000 #131313 #252525 #3c3c3c #525252 #636363 #737373 #858585 #979797 " +
    "#aaaaaa #bebebe #cccccc #dadada #e5e5e5 #f0f0f0 #f8f8f8 #ffffff",
};

// For differences: blue below zero, red above it (ColorBrewer's RdBu).
const DIVERGING =
  "#053061 #175290 #2a71b2 #3f8ec0 #6bacd1 #9bc9e0 #c2ddec #e0ecf3 #f7f6f6 " +
  "#fbe5d8 #fbccb4 #f5aa89 #e48066 #d05548 #ba2832 #930e26 #67001f";

function colourScale(name) {
  const colours = (name === "difference" ? DIVERGING : COLOUR_MAPS[name]).split(" ");
  return colours.map((colour, index) => [index / (colours.length - 1), colour]);
}

// Red, green and blue of a colour that is written as "#rrggbb" or "rgb(r,g,b)".
function channels(text) {
  return text[0] === "#" ? [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)) : text.match(/\d+/g).map(Number);
}

// The part of a colour scale between two heights, given the heights of the whole: the same height keeps its colour.
function partOf(colours, [low, high], [bottom, top]) {
  const stops = colours.map(([, text]) => channels(text));
  const at = (height) => {
    const place = Math.min(Math.max((height - bottom) / (top - bottom), 0), 1) * (colours.length - 1);
    const first = Math.min(Math.floor(place), colours.length - 2);
    return `rgb(${stops[first].map((value, index) => Math.round(value + (place - first) * (stops[first + 1][index] - value))).join(",")})`;
  };
  return Array.from({ length: 33 }, (_, index) => [index / 32, at(low + ((high - low) * index) / 32)]);
}
